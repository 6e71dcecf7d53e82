#!/bin/bash
# Makes the certificates of the links between servers and prints them as a Secret:
#   deploy/peer-certs.sh DIRECTORY [REPLICAS [NAMESPACE]] | kubectl apply -f -
# DIRECTORY keeps the private CA for the next time: guard it, whoever has ca.key can be a server. REPLICAS (8) is how
# many pods the certificate names. Run it again to renew: the CA lives ten years, the certificate one.
set -euo pipefail
(($# >= 1 && $# <= 3)) || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
directory=$1 replicas=${2:-8} namespace=${3:-gradwire}
[[ $replicas =~ ^[1-9][0-9]{0,3}$ ]] || { echo "$(basename "$0"): REPLICAS is a number from 1 to 9999" >&2; exit 2; }
[[ $namespace =~ ^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$ ]] || { echo "$(basename "$0"): no namespace: $namespace" >&2; exit 2; }

umask 077
mkdir -p "$directory"
ca=$directory/ca
if [[ ! -e $ca.key ]]; then
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -keyout "$ca.key" -out "$ca.crt" \
    -subj "/CN=Gradwire peers of $namespace" -addext basicConstraints=critical,CA:TRUE,pathlen:0 \
    -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
fi
names=''
for ((i = 0; i < replicas; i++)); do
  names+="${names:+,}DNS:gradwire-$i.gradwire-peers.$namespace.svc,DNS:gradwire-$i.gradwire-peers.$namespace.svc.cluster.local"
done
# A server that is dialled is known by these names, one that dials by the common name.
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$directory/tls.key" \
  -subj "/CN=*.gradwire-peers.$namespace.svc" 2>/dev/null |
  openssl x509 -req -days 365 -CA "$ca.crt" -CAkey "$ca.key" -set_serial "0x$(openssl rand -hex 16)" \
    -out "$directory/tls.crt" -extfile <(printf '%s\n' "subjectAltName=$names" basicConstraints=critical,CA:FALSE \
      keyUsage=critical,digitalSignature extendedKeyUsage=serverAuth,clientAuth) 2>/dev/null

encoded() { base64 -w0 "$1"; }
cat <<YAML
apiVersion: v1
kind: Secret
metadata:
  name: gradwire-peer-tls
  namespace: $namespace
type: kubernetes.io/tls
data:
  ca.crt: $(encoded "$ca.crt")
  tls.crt: $(encoded "$directory/tls.crt")
  tls.key: $(encoded "$directory/tls.key")
YAML
