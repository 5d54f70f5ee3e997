#!/usr/bin/env bash
# The ceiling of a box: how many packets can this machine send, by which path, and what stops it?
#
#   examples/ceiling.sh                          20 s on loopback: what the software path can do
#   AGAINST=10.0.0.2:9000 examples/ceiling.sh    through the NIC, to `blast serve udp --mode sink` over there
#   FULL=yes STORE=yes examples/ceiling.sh       3 minutes, all sizes and workers, kept for later runs to be judged against
#
# How to read it: "flat out" is what the kernel takes without a plan, with whatever delays. "ceiling" is the highest rate at which blast
# still kept its plan, three times in a row: a load above it measures this box and not the target. "the wall above" is what gave out
# first: duty = one core's system calls (more workers, or trains of packets with --gso, go further), lag = something else took the
# core (quiet the machine), refused = the device or its queue. Below a third of the ceiling there is room for a bad second.
#
# What to change: PAYLOADS to your packet sizes, WORKERS to the cores you would give it, BACKEND to one path alone.
set -euo pipefail
BLAST=${BLAST:-$(dirname "$0")/../bin/blast}
command -v "$BLAST" >/dev/null || { echo "no blast at $BLAST: make build, or BLAST=path/to/blast" >&2; exit 2; }
PAYLOADS=${PAYLOADS:-64,1400} WORKERS=${WORKERS:-1} BACKEND=${BACKEND:-} AGAINST=${AGAINST:-} BUDGET=${BUDGET:-15s}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ "${STORE:-no}" != yes ]; then # an example is not to replace the calibration that your runs are judged by
  export XDG_STATE_HOME=$work
  echo "not kept after this example; STORE=yes keeps it"
fi

options=(--quick --budget "$BUDGET" --payloads "$PAYLOADS" --workers "$WORKERS")
if [ "${FULL:-no}" = yes ]; then options=(); fi
if [ -n "$BACKEND" ]; then options+=(--backend "$BACKEND"); fi
if [ -n "$AGAINST" ]; then options+=(--against "$AGAINST"); fi

"$BLAST" calibrate "${options[@]}" | tee "$work/ceilings.txt" || true # without any ceiling the answer says so

# "use" names the best path and by how much; "stay below" is a third of its ceiling.
answer=$(sed -n '/^stay below/,/^$/p' "$work/ceilings.txt" | tr -s ' \n' ' ')
[ -n "$answer" ] || { echo "answer: unknown: every trial was interrupted, this machine is busy with something else"; exit 3; }
echo "answer: $answer"
