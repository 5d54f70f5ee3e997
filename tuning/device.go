package tuning

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"

	"blast/internal/sys"
)

// Setting names something that only the driver of an interface knows. Its value is text: pairs NAME=VALUE, or hash fields.
type Setting string

// The settings. Those without "read only" can be set too.
const (
	// Channels: "rx=0 tx=0 other=1 combined=4".
	Channels Setting = "channels"
	// ChannelsMax is the most of each, read only.
	ChannelsMax Setting = "channels-max"
	// Rings and RingsMax: "rx=256 tx=256", in descriptors; read only.
	Rings    Setting = "rings"
	RingsMax Setting = "rings-max"
	// Coalesce: "adaptive-rx=0 adaptive-tx=0 rx-usecs=3 rx-frames=0 tx-usecs=0 tx-frames=0". Setting may name some only.
	Coalesce Setting = "coalesce"
	// RSSConfig: "function=toeplitz transform=0 key=HEX table=0,1,2,3"; "table=default" sets the driver's own.
	RSSConfig Setting = "rss"
	// UDP4Fields and UDP6Fields: what of a UDP packet is hashed, in ethtool's letters, such as "sdfn"; "-" = nothing.
	UDP4Fields Setting = "udp4-fields"
	UDP6Fields Setting = "udp6-fields"
	// Offloads: "rx-gro=1 rx-hashing=0 ...", read only.
	Offloads Setting = "offloads"
	// QueuePackets: packets received by queue, "0=17 1=4", read only. Empty when the driver does not count by queue.
	QueuePackets Setting = "queue-packets"
)

// Device reads and sets what only drivers know. An error wraps errors.ErrUnsupported (through its errno) where a driver lacks
// the setting, and the kernel's errno otherwise.
type Device interface {
	Get(iface string, s Setting) (string, error)
	Set(iface string, s Setting, value string) error
}

// Device is the drivers of this host (ethtool, in the calling thread's network namespace), or for another root a tree of files,
// ROOT/ethtool/IFACE/SETTING, that hold the same text: a host described for blast tune check --root, or a test's.
func (r Reader) Device() Device {
	if r.live() {
		return drivers{}
	}
	return recorded{r}
}

// recorded is the Device of a tree of files.
type recorded struct{ r Reader }

func (d recorded) path(iface string, s Setting) string {
	return d.r.path("/ethtool/" + filepath.Base(iface) + "/" + string(s))
}

func (d recorded) Get(iface string, s Setting) (string, error) {
	b, err := os.ReadFile(d.path(iface, s))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s %s: %w", iface, s, errors.ErrUnsupported)
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", iface, s, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Set merges pairs into what is there, as a driver does with a part of its settings.
func (d recorded) Set(iface string, s Setting, value string) error {
	old, err := d.Get(iface, s)
	if err != nil {
		return err
	}
	if strings.Contains(value, "=") {
		merged := pairs(old)
		for _, k := range names(value) {
			merged[k] = pairs(value)[k]
		}
		if merged["table"] == "default" { // spread over the channels, as ethtool_rxfh_indir_default does
			ch, _ := d.Get(iface, Channels)
			n := max(1, number0(pairs(ch)["combined"])+number0(pairs(ch)["rx"]))
			merged["table"] = equalTable(len(strings.Split(pairs(old)["table"], ",")), n)
		}
		order := names(old)
		value = joinPairs(order, merged)
	}
	if err := os.WriteFile(d.path(iface, s), []byte(value+"\n"), 0o644); err != nil {
		return fmt.Errorf("%s %s: %w", iface, s, err)
	}
	return nil
}

// equalTable spreads n queues over the entries of a table in turn.
func equalTable(entries, queues int) string {
	var b strings.Builder
	for i := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(i % queues))
	}
	return b.String()
}

// drivers is the Device of this host.
type drivers struct{}

func (drivers) Get(iface string, s Setting) (string, error) {
	switch s {
	case RSSConfig:
		h, err := sys.RSS(iface)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", iface, s, err)
		}
		return RSS{Function: functionName(h.Function), Transform: h.Transform, Key: h.Key, Table: h.Table}.String(), nil
	case UDP4Fields, UDP6Fields:
		bits, err := sys.HashFields(iface, udpFlow(s))
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", iface, s, err)
		}
		return fieldLetters(bits), nil
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", iface, s, err)
	}
	defer e.Close()
	var text string
	sys.OnFirmStack(func() { text, err = getEthtool(e, iface, s) })
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", iface, s, err)
	}
	return text, nil
}

// getEthtool asks for the settings that the library knows.
func getEthtool(e *ethtool.Ethtool, iface string, s Setting) (string, error) {
	switch s {
	case Channels:
		c, err := e.GetChannels(iface)
		return fmt.Sprintf("rx=%d tx=%d other=%d combined=%d", c.RxCount, c.TxCount, c.OtherCount, c.CombinedCount), err
	case ChannelsMax:
		c, err := e.GetChannels(iface)
		return fmt.Sprintf("rx=%d tx=%d other=%d combined=%d", c.MaxRx, c.MaxTx, c.MaxOther, c.MaxCombined), err
	case Rings:
		ring, err := e.GetRing(iface)
		return fmt.Sprintf("rx=%d tx=%d", ring.RxPending, ring.TxPending), err
	case RingsMax:
		ring, err := e.GetRing(iface)
		return fmt.Sprintf("rx=%d tx=%d", ring.RxMaxPending, ring.TxMaxPending), err
	case Coalesce:
		c, err := e.GetCoalesce(iface)
		return fmt.Sprintf("adaptive-rx=%d adaptive-tx=%d rx-usecs=%d rx-frames=%d tx-usecs=%d tx-frames=%d", c.UseAdaptiveRxCoalesce,
			c.UseAdaptiveTxCoalesce, c.RxCoalesceUsecs, c.RxMaxCoalescedFrames, c.TxCoalesceUsecs, c.TxMaxCoalescedFrames), err
	case Offloads:
		features, err := e.Features(iface)
		on := map[string]string{}
		for _, name := range []string{"rx-checksum", "rx-gro", "rx-gro-hw", "rx-hashing", "rx-ntuple-filter", "tx-checksum-ip-generic",
			"tx-generic-segmentation", "tx-udp-segmentation"} {
			if set, known := features[name]; known {
				on[name] = "0"
				if set {
					on[name] = "1"
				}
			}
		}
		return joinPairs(slices.Sorted(maps.Keys(on)), on), err
	case QueuePackets:
		counters, err := e.Stats(iface)
		return queuePackets(counters), err
	}
	return "", errors.ErrUnsupported
}

func (drivers) Set(iface string, s Setting, value string) error {
	if err := setDriver(iface, s, value); err != nil {
		return fmt.Errorf("%s %s: %w", iface, s, err)
	}
	return nil
}

func setDriver(iface string, s Setting, value string) error {
	switch s {
	case RSSConfig:
		return setRSS(iface, value)
	case UDP4Fields, UDP6Fields:
		bits, err := fieldBits(value)
		if err != nil {
			return err
		}
		return sys.SetHashFields(iface, udpFlow(s), bits)
	case Channels, Coalesce:
	default:
		return errors.ErrUnsupported
	}
	e, err := ethtool.NewEthtool()
	if err != nil {
		return err
	}
	defer e.Close()
	sys.OnFirmStack(func() { err = setEthtool(e, iface, s, value) })
	return err
}

// setEthtool changes the settings that the library knows. A value may name a part: the rest stays as it is.
func setEthtool(e *ethtool.Ethtool, iface string, s Setting, value string) error {
	if s == Channels {
		c, err := e.GetChannels(iface)
		if err != nil {
			return err
		}
		if err := store(value, map[string]*uint32{"rx": &c.RxCount, "tx": &c.TxCount, "other": &c.OtherCount, "combined": &c.CombinedCount}); err != nil {
			return err
		}
		_, err = e.SetChannels(iface, c)
		return err
	}
	c, err := e.GetCoalesce(iface)
	if err != nil {
		return err
	}
	if err := store(value, map[string]*uint32{"adaptive-rx": &c.UseAdaptiveRxCoalesce, "adaptive-tx": &c.UseAdaptiveTxCoalesce,
		"rx-usecs": &c.RxCoalesceUsecs, "rx-frames": &c.RxMaxCoalescedFrames, "tx-usecs": &c.TxCoalesceUsecs, "tx-frames": &c.TxMaxCoalescedFrames}); err != nil {
		return err
	}
	_, err = e.SetCoalesce(iface, c)
	return err
}

func setRSS(iface, value string) error {
	p := pairs(value)
	table := p["table"]
	if table == "default" {
		p["table"] = ""
	}
	h, err := ParseRSS(joinPairs(names(value), p))
	if err != nil {
		return err
	}
	set := sys.RXFH{Function: functionBit(h.Function), Transform: h.Transform, Key: h.Key, Table: h.Table}
	now, err := sys.RSS(iface)
	if err != nil {
		return err
	}
	// A table that was set counts as the user's, even when it equals the default, and the driver then refuses to drop queues. So the
	// default is tried first: where it is what is wanted, the card is as if nobody had touched it.
	if table == "default" || len(set.Table) > 0 {
		if err := sys.SetRSS(iface, sys.RXFH{Transform: now.Transform, Table: []uint32{}}); err != nil {
			return err
		}
		if now, err = sys.RSS(iface); err != nil {
			return err
		}
	}
	// A driver that cannot change the function or key refuses to be told, even its own; name only what differs.
	if now.Function == set.Function {
		set.Function = 0
	}
	if slices.Equal(now.Key, set.Key) {
		set.Key = nil
	}
	if slices.Equal(now.Table, set.Table) {
		set.Table = nil
	}
	if p["transform"] == "" {
		set.Transform = now.Transform
	}
	if set.Function == 0 && set.Key == nil && set.Table == nil && set.Transform == now.Transform {
		return nil
	}
	return sys.SetRSS(iface, set)
}

// store puts the numbers of a text of pairs where they belong.
func store(value string, to map[string]*uint32) error {
	for k, v := range pairs(value) {
		n, err := strconv.ParseUint(v, 10, 32)
		if to[k] == nil || err != nil {
			return fmt.Errorf("%s=%s: want a number for one of %s", k, v, strings.Join(slices.Sorted(maps.Keys(to)), ", "))
		}
		*to[k] = uint32(n)
	}
	return nil
}

// queuePackets finds the receive counters by queue among a driver's counters. The names differ: igb, ixgbe, i40e
// rx_queue_N_packets or rx-N.packets, mlx5 and virtio_net rxN_packets or rx_N_packets / rx_queue_N_packets, ena queue_N_rx_cnt,
// veth rx_queue_N_xdp_packets.
func queuePackets(counters map[string]uint64) string {
	re := regexp.MustCompile(`^(?:rx_queue_|rx-|rx_|rx|queue_)(\d+)(?:_packets|\.packets|\.rx_packets|_rx_cnt|_xdp_packets)$`)
	byQueue := map[int]uint64{}
	for name, n := range counters {
		if m := re.FindStringSubmatch(name); m != nil {
			queue, err := strconv.Atoi(m[1])
			if err != nil {
				continue
			}
			byQueue[queue] = max(byQueue[queue], n)
		}
	}
	var parts []string
	for _, queue := range slices.Sorted(maps.Keys(byQueue)) {
		parts = append(parts, fmt.Sprintf("%d=%d", queue, byQueue[queue]))
	}
	return strings.Join(parts, " ")
}

func udpFlow(s Setting) uint32 {
	if s == UDP6Fields {
		return sys.FlowUDP6
	}
	return sys.FlowUDP4
}

// pairs reads "a=1 b=2".
func pairs(text string) map[string]string {
	m := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		k, v, _ := strings.Cut(word, "=")
		m[k] = v
	}
	return m
}

// names are the left sides of pairs, in their order.
func names(text string) []string {
	var out []string
	for word := range strings.FieldsSeq(text) {
		k, _, _ := strings.Cut(word, "=")
		out = append(out, k)
	}
	return out
}

func joinPairs(order []string, m map[string]string) string {
	var parts []string
	for _, k := range order {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, " ")
}

// number0 reads a number, 0 for anything else.
func number0(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
