// Package testnet makes networks for tests: two network namespaces joined by a multi-queue veth pair, built by netlink
// on locked threads, without a shell and without a name on disk.
//
//	     namespace "left"                         namespace "right"
//	+------------------------+               +------------------------+
//	| lo                     |   queue 0     |                     lo |
//	| left0  10.83.0.1/24    |<------------->|  10.83.0.2/24  right0  |
//	|        fd83::1/64      |   queue n-1   |  fd83::2/64            |
//	| left0.83 (when a VLAN  |               |  right0.83             |
//	|        is asked for)   |               |                        |
//	+------------------------+               +------------------------+
//
// The namespaces are held by file descriptors alone: when the test ends, fails, panics or is killed, the kernel takes
// them away with everything inside. Nothing on the host changes.
//
// It needs Linux with veth and CAP_SYS_ADMIN (for the namespaces) and CAP_NET_ADMIN. Where they are missing the test is
// skipped by the rule of package testskip, under the feature "netns"; the XDP helpers use the feature "xdp" and need
// CAP_BPF.
package testnet
