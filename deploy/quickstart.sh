#!/bin/bash
# From nothing to a trained model: installs what is missing, builds, starts a server on loopback, trains on it from a C++
# program, computes a gradient over HTTP, stops the server, and tells what it did. Asks nothing.
. "$(dirname "$0")/common.sh"

phase "1/5 Packages"
deploy/install-deps.sh

phase "2/5 Building build/release (some minutes the first time)"
build release gradwired gradwire train_digits hello

phase "3/5 Starting a server"
run=$(mktemp -d)
build/release/bin/gradwired --rpc 127.0.0.1:0 --http 127.0.0.1:0 --probe 127.0.0.1:0 >"$run/ready" 2>"$run/log" &
server=$!
stop() {
  kill "$server" 2>/dev/null && wait "$server" || true
  rm -rf "$run"
}
trap stop EXIT
# One line of JSON says that it is ready, and where.
until [[ -s $run/ready ]]; do
  kill -0 "$server" 2>/dev/null || { cat "$run/log" >&2; fail "the server did not start"; }
  sleep 0.05
done
address() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" "$run/ready"; }
rpc=$(address rpc) http=$(address http)
echo "gradwired listens: Cap'n Proto on $rpc, HTTP on $http"

phase "4/5 Training on it, from a C++ program"
build/release/bin/train_digits --server "$rpc" --svg build/digits.svg --weights build/digits.safetensors | tee "$run/training"
# The loss curve of the SVG once more, for the terminal.
sed -n 's/.*<polyline.*points="\([^"]*\)".*/\1/p' build/digits.svg | head -n 1 | tr ' ' '\n' | awk -F, '
  NF == 2 { y[++n] = $2; if (n == 1 || $2 < top) top = $2; if ($2 > low) low = $2 }
  END {
    for (row = 0; row < 8; row++) {
      line = row == 0 ? "   loss |" : "        |"
      for (i = 1; i <= n; i++) line = line (int((y[i] - top) / (low - top + 1e-9) * 7 + 0.5) == row ? " *" : "  ")
      print line
    }
    line = "        +"
    for (i = 1; i <= n; i++) line = line "--"
    print line " epoch"
  }'

phase "5/5 The same server over HTTP: d(sum(x * x))/dx at [1, 2, 3]"
session=$(curl -sS --fail-with-body --json '{}' "http://$http/v1/sessions" | sed 's/.*"id": *"\([^"]*\)".*/\1/')
program='{"inputs": {"x": {"data": [1.0, 2.0, 3.0], "requires_grad": true}},
 "ops": [{"op": "mul", "in": ["x", "x"], "out": "y"}, {"op": "sum", "in": ["y"], "out": "loss"},
         {"op": "backward", "in": ["loss"]}],
 "fetch": ["loss", "x.grad"]}'
echo "$program"
curl -sS --fail-with-body --json "$program" "http://$http/v1/sessions/$session/run"
echo

kill "$server"
wait "$server" || fail "the server ended with an error"
trap - EXIT
phase "Done"
cat <<TEXT
What happened:
  built     build/release/bin/gradwired (the server), gradwire (the command), train_digits and hello (examples)
  trained   $(head -n 1 "$run/training")
  plotted   loss and accuracy: $PWD/build/digits.svg
  saved     the weights, for any program that reads safetensors: $PWD/build/digits.safetensors
  called    the same operators over HTTP, gradient included
  stopped   the server, in order
Next: tests/run.sh runs the tests; client/examples/ has programs to start from; schema/ops.md lists the operators.
TEXT
rm -rf "$run"
