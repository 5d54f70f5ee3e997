#!/usr/bin/env bash
# Two backends, compared honestly: is B really faster than A here, or is that the noise between any two runs?
#
#   examples/compare-backends.sh                            sendmmsg against net on loopback
#   A=sendmmsg B=io_uring FLOWS=1000 examples/compare-backends.sh
#   SERVER=10.0.0.2:9000 RATE=50k DURATION=30s ROUNDS=5 examples/compare-backends.sh
#
# What makes it honest:
#   - the same rate, payload and flows for both, and a rate that both can keep: at its own ceiling each shows its queue, not its speed
#   - ROUNDS rounds each, and the median round is the headline, not the best one
#   - the order is A B B A: what drifts (heat, neighbours) meets both alike
#   - A is also compared with A: a difference between A and B that is not larger than that is none
#
# How to read it: the table has a column for each and their ratio. The answer sets B / A beside the noise, the ratio of the two runs of A. An
# INVALID run on either side is not a result, and its figures say so; exit 3.
#
# What to change: A, B, RATE, FLOWS, PAYLOAD, ROUNDS; or compare two servers, versions or settings the same way.
set -euo pipefail
BLAST=${BLAST:-$(dirname "$0")/../bin/blast}
command -v "$BLAST" >/dev/null || { echo "no blast at $BLAST: make build, or BLAST=path/to/blast" >&2; exit 2; }
A=${A:-sendmmsg} B=${B:-net} SERVER=${SERVER:-} RATE=${RATE:-10k} FLOWS=${FLOWS:-1} PAYLOAD=${PAYLOAD:-64} DURATION=${DURATION:-2s} ROUNDS=${ROUNDS:-3} MAX_LAG=${MAX_LAG:-1ms}

work=$(mktemp -d)
server=
trap 'kill ${server:+"$server"} 2>/dev/null || true; rm -rf "$work"' EXIT
figure() { # figure FILE SECTION NAME: the first NAME after SECTION in a JSON result
  awk -v section="\"$2\":" -v name="\"$3\":" '$1 == section { inside = 1 } inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}

if [ -z "$SERVER" ]; then
  exec 3< <(exec "$BLAST" serve udp --listen 127.0.0.1:0 2>/dev/null)
  server=$!
  read -r _ SERVER <&3
fi

code=0
run() { # run FILE BACKEND
  local c=0
  "$BLAST" udp "$SERVER" --backend "$2" --rate "$RATE" --flows "$FLOWS" --payload "$PAYLOAD" --duration "$DURATION" --rounds "$ROUNDS" --max-lag "$MAX_LAG" --out "$work/$1.json" >"$work/$1.txt" || c=$?
  case $c in
  0) echo "$1 ($2): sound" ;;
  3) echo "$1 ($2): INVALID" && code=3 ;;
  *) exit "$c" ;;
  esac
}
run a1 "$A"
run b1 "$B"
run b2 "$B"
run a2 "$A"

printf '\n== A = %s, B = %s\n' "$A" "$B"
"$BLAST" report "$work/a1.json" "$work/b1.json"

if [ "$code" = 3 ]; then
  printf '\nanswer: unknown: not every run is VALID; on a quiet machine once more, or at a lower RATE\n'
  exit 3
fi
p50() { figure "$work/$1.json" latency_ns p50; }
echo
awk -v a="$A" -v b="$B" -v a1="$(p50 a1)" -v b1="$(p50 b1)" -v b2="$(p50 b2)" -v a2="$(p50 a2)" 'BEGIN {
  ratio = (b1 + b2) / (a1 + a2)
  noise = a1 > a2 ? a1 / a2 : a2 / a1
  more = b1 > b2 ? b1 / b2 : b2 / b1
  if (more > noise) noise = more
  apart = ratio > 1 ? ratio : 1 / ratio
  verdict = apart <= noise ? "no difference that two runs of the same do not show" : ratio > 1 ? b " is slower" : b " is faster"
  printf "answer: latency p50 of %s is %.2f times that of %s; two runs of the same differ up to %.2f times: %s\n", b, ratio, a, noise, verdict
}'
