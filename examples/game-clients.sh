#!/usr/bin/env bash
# 1,000 game clients at 30 Hz: does the server answer each client within its tick, and what does it change when all clients tick at once?
#
#   examples/game-clients.sh                                   an echo on loopback
#   SERVER=10.0.0.2:9000 CLIENTS=5000 examples/game-clients.sh     your game server, if it echoes what it gets, or `blast serve udp` beside it
#
# Two runs of the same load, CLIENTS x HZ packets a second from a socket each:
#   spread    the clients' ticks lie evenly: how players really arrive
#   at once   all of them send in the same instant, 30 times a second: lock-step, or the second after a restart
# The mean rate is the same; what differs is the queue in front of the server.
#
# How to read it: compare p99 with the tick. In the second run the last client of a tick waits for all before it, so p50 is about half of
# what the server needs for everybody, and p99 nearly all of it. That much of each tick is gone before the game computes anything.
# "at once" is also the hardest plan for blast itself: a thousand packets are due in one instant and leave one after the other. MAX_LAG
# says how long that may take; lag shows how long it took, and latency contains it, as the players would feel it.
#
# What to change: CLIENTS, HZ, PAYLOAD (your packet), BACKEND (io_uring sends for all sockets in one call; auto where it is missing).
set -euo pipefail
BLAST=${BLAST:-$(dirname "$0")/../bin/blast}
command -v "$BLAST" >/dev/null || { echo "no blast at $BLAST: make build, or BLAST=path/to/blast" >&2; exit 2; }
SERVER=${SERVER:-} CLIENTS=${CLIENTS:-1000} HZ=${HZ:-30} PAYLOAD=${PAYLOAD:-120} DURATION=${DURATION:-10s} MAX_LAG=${MAX_LAG:-10ms} BACKEND=${BACKEND:-}

work=$(mktemp -d)
server=
trap 'kill ${server:+"$server"} 2>/dev/null || true; rm -rf "$work"' EXIT
figure() { # figure FILE SECTION NAME: the first NAME after SECTION in a JSON result
  awk -v section="\"$2\":" -v name="\"$3\":" '$1 == section { inside = 1 } inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}

if [ -z "$BACKEND" ]; then
  BACKEND=auto
  if grep -q '^io_uring  *yes' <<<"$("$BLAST" probe)"; then BACKEND=io_uring; fi
fi
# A socket for each client: more than the usual 1,024 open files.
ulimit -n $((CLIENTS + 100)) 2>/dev/null || [ "$(ulimit -n)" -ge $((CLIENTS + 100)) ] ||
  { echo "$CLIENTS clients need $((CLIENTS + 100)) open files, and this shell may have $(ulimit -Hn): raise the hard limit, or lower CLIENTS" >&2; exit 2; }
if [ -z "$SERVER" ]; then
  exec 3< <(exec "$BLAST" serve udp --listen 127.0.0.1:0 2>/dev/null)
  server=$!
  read -r _ SERVER <&3
fi

code=0
run() { # run NAME FLAGS...
  local name=$1 c=0
  shift
  printf '\n== %s\n' "$name"
  "$BLAST" udp "$SERVER" --flows "$CLIENTS" --payload "$PAYLOAD" --duration "$DURATION" --backend "$BACKEND" --max-lag "$MAX_LAG" "$@" --out "$work/$name.json" >"$work/$name.txt" || c=$?
  sed -n '1,/^$/p; / n  *p50 /,/^$/p' "$work/$name.txt"
  if [ "$c" -gt "$code" ]; then code=$c; fi
  if [ "$c" = 1 ] || [ "$c" = 2 ]; then exit "$c"; fi
}
run spread --rate $((CLIENTS * HZ))
run at-once --profile "tick:$HZ"

share() { # share NAME: p99 as microseconds, and as a part of the tick
  awk -v ns="$(figure "$work/$1.json" latency_ns p99)" -v hz="$HZ" 'BEGIN { printf "%.0f us (%.1f %% of a tick)", ns / 1e3, ns * hz / 1e7 }'
}
echo
if [ "$code" = 3 ]; then
  echo "answer: unknown: this machine was too busy to judge the server; run it again, or with a larger MAX_LAG"
  exit 3
fi
echo "answer: $CLIENTS clients at $HZ Hz: p99 $(share spread) when spread, $(share at-once) when all at once;" \
  "unanswered $(figure "$work/spread.json" ledger lost) and $(figure "$work/at-once.json" ledger lost)"
exit "$code"
