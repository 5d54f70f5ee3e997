// Package vm tests blast on network cards that this machine does not have: it boots a QEMU guest with two igb cards (four queues each,
// one on each of two NUMA nodes, joined by a hub) and runs test binaries in it, those on bonds and VLANs too, which the kernel of the build machines does not make. It holds only tests;
// make vm-test runs them.
//
// The guest runs without KVM, so /dev/kvm and its privilege are not needed; emulated processors are slow, and what is asserted there are
// counts and ratios. Debian's packages are needed: the guest's kernel is downloaded into the user's cache folder, and QEMU is installed
// where it is missing, which needs root. In the guest everything runs as root on a kernel whose igb driver has AF_XDP zero-copy (6.14).
package vm
