#!/bin/bash
# Makes the root file system of an image: deploy/image-root.sh PROGRAM DIRECTORY
# PROGRAM becomes /usr/bin/gradwired, beside the libraries that it loads and the names of its user; nothing else: no
# shell, no package manager. The Dockerfiles call it, and the tests start what it made.
set -euo pipefail
(($# == 2)) || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
program=$1 root=$2
if [[ -e $root ]] && [[ -n $(ls -A "$root") ]]; then
  echo "$(basename "$0"): $root is not empty" >&2
  exit 1
fi

install -D -m 0755 "$program" "$root/usr/bin/gradwired"
# "libx.so.1 => /usr/lib/libx.so.1 (0x…)", and the loader without an arrow; linux-vdso is no file. The libraries keep
# their paths, which a RUNPATH may name, and the cache finds those that lie elsewhere.
libraries=$(ldd "$program")
if grep -q 'not found' <<<"$libraries"; then
  grep 'not found' <<<"$libraries" >&2
  exit 1
fi
mkdir -p "$root/etc"
awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\// {print $1}' <<<"$libraries" | sort -u |
  while IFS= read -r library; do
    # /lib may be a link to /usr/lib: then it is one here too.
    for link in /lib /lib64; do
      if [[ $library == $link/* && -L $link && ! -e $root$link ]]; then
        mkdir -p "$root$(readlink -f "$link")"
        ln -s "$(readlink "$link")" "$root$link"
      fi
    done
    install -D -m 0644 "$(readlink -f "$library")" "$root$library"
    dirname "$library" >>"$root/etc/directories"
  done
sort -u "$root/etc/directories" >"$root/etc/ld.so.conf"
rm "$root/etc/directories"
# The loader itself is called as a program.
find "$root" -name 'ld-linux*' -exec chmod 0755 {} +
ldconfig -r "$root"

echo 'gradwire:x:10001:10001::/:/usr/sbin/nologin' >"$root/etc/passwd"
echo 'gradwire:x:10001:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
# Where volumes are mounted: a read-only root can grow no directory later.
mkdir -p "$root"/{proc,sys,dev,tmp,run/gradwire,var/lib/gradwire,etc/gradwire,etc/gradwire-peer}
chmod 1777 "$root/tmp"
