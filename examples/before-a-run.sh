#!/usr/bin/env bash
# Before a real run, and the run, in a pipeline: is this machine fast enough to judge the target, where does the target give out, and
# does it keep its objectives at the rate that it has to carry?
#
#   examples/before-a-run.sh                                            a service of known capacity on loopback: 4 servers x 1 ms = 4,000/s
#   TARGET=10.0.0.2:9000 RATE=20k SLO='p99<5ms' examples/before-a-run.sh    yours, from a machine beside it
#
# How to read it, by the exit code, as the pipeline does:
#   0  the target carries RATE within its objectives: the build may go on
#   4  the figures are sound, and an objective was missed: the target is too slow, stop the build
#   3  blast itself did not keep the plan: nothing is known about the target. Run it again on a quiet machine; do not blame the target
#   1, 2  it did not run: an error, or bad input
# The ladder before it says how far from its knee the target is at RATE: a service that carries 20 % more today fails next month.
#
# What to change: TARGET, RATE, SLO, DURATION (minutes, for a real run), FROM and STEP of the ladder; MAX_LAG where a send later than 1 ms
# does not matter. PROVE=yes lets blast prove gather the evidence when an objective was missed: a slow target, or a slow generator?
set -euo pipefail
BLAST=${BLAST:-$(dirname "$0")/../bin/blast}
command -v "$BLAST" >/dev/null || { echo "no blast at $BLAST: make build, or BLAST=path/to/blast" >&2; exit 2; }
TARGET=${TARGET:-} RATE=${RATE:-2k} SLO=${SLO:-p99<20ms} DURATION=${DURATION:-5s} FROM=${FROM:-1k} STEP=${STEP:-1s} MAX_LAG=${MAX_LAG:-1ms} LADDER=${LADDER:-yes}

work=$(mktemp -d)
server=
trap 'kill ${server:+"$server"} 2>/dev/null || true; rm -rf "$work"' EXIT
figure() { # figure FILE SECTION NAME: the first NAME after SECTION in a JSON result
  awk -v section="\"$2\":" -v name="\"$3\":" '$1 == section { inside = 1 } inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}

if [ -z "$TARGET" ]; then
  exec 3< <(exec "$BLAST" serve udp --servers 4 --service 1ms --listen 127.0.0.1:0 2>/dev/null)
  server=$!
  read -r _ TARGET <&3
fi

echo "== 1. what can this machine send?"
# Once a machine, not once a build: with STORE=yes it is kept, and later runs are judged against it without measuring again.
if [ "${STORE:-no}" != yes ]; then
  export XDG_STATE_HOME=$work/state
  "$BLAST" calibrate --quick --budget 4s --backend sendmmsg --payloads 64 --workers 1 >"$work/calibration.txt" ||
    { cat "$work/calibration.txt"; echo "answer: unknown: this machine is too busy to be measured; run it again"; exit 3; }
  grep -E '^(backend|sendmmsg) ' "$work/calibration.txt"
fi

if [ "$LADDER" = yes ]; then
  printf '\n== 2. where does the target give out?\n'
  code=0
  "$BLAST" ladder "$TARGET" --from "$FROM" --step "$STEP" --resolution 10% --max-lag "$MAX_LAG" --slo "$SLO" >"$work/ladder.txt" || code=$?
  sed '/^$/q' "$work/ladder.txt"
  if [ "$code" = 1 ] || [ "$code" = 2 ]; then exit "$code"; fi # 3: the generator was the wall; the run itself may still be VALID
fi

printf '\n== 3. does it keep its objectives at %s?\n' "$RATE"
code=0
"$BLAST" udp "$TARGET" --rate "$RATE" --duration "$DURATION" --backend sendmmsg --max-lag "$MAX_LAG" --slo "$SLO" --slo 'loss<0.1%' --out "$work/run.json" >"$work/run.txt" || code=$?
sed '/^$/q' "$work/run.txt"
if [ "$code" = 4 ] && [ "${PROVE:-no}" = yes ]; then
  printf '\n== 4. whose fault is it?\n'
  "$BLAST" prove "$TARGET" --rate "$RATE" --duration "$DURATION" --backend sendmmsg --max-lag "$MAX_LAG" >"$work/proof.txt" || true # evidence, not another verdict
  cat "$work/proof.txt"
  echo
fi
p99() { echo "p99 $(($(figure "$work/run.json" latency_ns p99) / 1000)) us"; }
margin() { figure "$work/run.json" calibration margin | sed 's/\..*//; s/.*/, and this machine could have sent & times as much/'; }
case $code in
0) echo "answer: pass: $RATE within $SLO, $(p99)$(margin)" ;;
4) echo "answer: fail: the target misses an objective at $RATE ($(p99), wanted $SLO)" ;;
3) echo "answer: unknown: this machine was too busy to judge the target; run it again" ;;
*) echo "answer: error $code" ;;
esac
exit "$code"
