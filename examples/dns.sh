#!/usr/bin/env bash
# A DNS server, or anything else that is not blast's own: does it answer every query at this rate, and how fast?
#
#   examples/dns.sh                                      dnsmasq on loopback (apt-get install dnsmasq-base)
#   SERVER=10.0.0.53:53 NAME=www.example.com examples/dns.sh    a resolver of yours. Public ones are refused: do not load what is not yours
#
# How it knows a reply: the query is a foreign payload (--payload-hex). Its first two bytes are the DNS id; --vary 0:2:seq counts them up
# in every packet, and --match 0:2 finds the same two bytes in the reply. 65,536 ids come round after 65,536 packets, so the timeout
# has to be shorter than that: blast refuses a rate at which an id would be in use twice.
#
# How to read it: "lost" queries got no reply within the timeout, "late" ones got it after. "stray" replies match no query that is open.
# Latency counts from the planned time, so a server that stalls for a second shows a second to all queries of it, not to one.
#
# What to change: NAME and TYPE (1 = A, 28 = AAAA), RATE, DURATION; for another protocol the bytes in hex and the place of its id.
set -euo pipefail
BLAST=${BLAST:-$(dirname "$0")/../bin/blast}
command -v "$BLAST" >/dev/null || { echo "no blast at $BLAST: make build, or BLAST=path/to/blast" >&2; exit 2; }
SERVER=${SERVER:-} NAME=${NAME:-blast.test} TYPE=${TYPE:-1} RATE=${RATE:-5k} DURATION=${DURATION:-10s} SLO=${SLO:-loss<0.1%} MAX_LAG=${MAX_LAG:-1ms}

work=$(mktemp -d)
server=
trap 'kill ${server:+"$server"} 2>/dev/null || true; rm -rf "$work"' EXIT
figure() { # figure FILE SECTION NAME: the first NAME after SECTION in a JSON result
  awk -v section="\"$2\":" -v name="\"$3\":" '$1 == section { inside = 1 } inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}

if [ -z "$SERVER" ]; then
  PATH=$PATH:/usr/sbin
  command -v dnsmasq >/dev/null || { echo "no dnsmasq here: apt-get install dnsmasq-base, or name a server with SERVER=HOST:53" >&2; exit 2; }
  port=$((20000 + RANDOM % 10000))
  dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --no-poll --pid-file= --user= --log-facility=- \
    --listen-address=127.0.0.1 --bind-interfaces --port="$port" --address=/test/192.0.2.1 2>"$work/dnsmasq.log" &
  server=$!
  until grep -q ":$(printf %04X "$port") " /proc/net/udp; do
    kill -0 "$server" 2>/dev/null || { cat "$work/dnsmasq.log" >&2; exit 1; }
    sleep 0.1
  done
  SERVER=127.0.0.1:$port
fi

# id 0, recursion desired, one question: NAME, TYPE, class IN. Each label stands behind its length (RFC 1035, 4.1).
query=000001000001000000000000
IFS=. read -ra labels <<<"$NAME"
for label in "${labels[@]}"; do
  query+=$(printf '%02x' "${#label}")$(printf %s "$label" | od -An -v -tx1 | tr -d ' \n')
done
query+=00$(printf '%04x' "$TYPE")0001

code=0
"$BLAST" udp "$SERVER" --rate "$RATE" --duration "$DURATION" --payload-hex "$query" --vary 0:2:seq --match 0:2 --max-lag "$MAX_LAG" --slo "$SLO" --out "$work/run.json" || code=$?
echo
case $code in
0 | 4)
  kept=kept
  if [ "$code" = 4 ]; then kept=missed; fi
  echo "answer: $(figure "$work/run.json" ledger replied) of $(figure "$work/run.json" ledger sent) queries for $NAME answered in time," \
    "p99 $(($(figure "$work/run.json" latency_ns p99) / 1000)) us; $SLO $kept"
  ;;
3) echo "answer: unknown: this machine was too busy to judge the server; run it again" ;;
esac
exit "$code"
