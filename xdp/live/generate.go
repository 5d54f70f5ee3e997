package live

// The programs are built by clang 14 (Debian 12); another version makes other code, and the check for stale files says so.
//go:generate go tool bpf2go -tags linux -go-package live -type state -type segment -type flow -type feed -type order -type instance -type queue -type histogram send bpf/send.c -- -O2 -Wall -Werror -mcpu=v3
//go:generate go tool bpf2go -tags linux -go-package live -type plan -type share -type counts -type lane -type histogram receive bpf/receive.c -- -O2 -Wall -Werror -mcpu=v3
//go:generate go tool bpf2go -tags linux -go-package live -type endpoint -type prefix -type counts -type run -type lane -type held echo bpf/echo.c -- -O2 -Wall -Werror -mcpu=v3
