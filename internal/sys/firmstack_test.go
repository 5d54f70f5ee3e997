package sys

import (
	"testing"
	"unsafe"
)

// TestOnFirmStack: on a new goroutine, whose stack is small, local variables stay where they are while a lot of stack is used.
func TestOnFirmStack(t *testing.T) {
	moved := make(chan bool)
	measure := func() {
		var local byte
		before := addressOf(&local)
		dig(400) // some 50 KB
		moved <- before != addressOf(&local)
	}
	go measure()
	if !<-moved {
		t.Error("an ordinary stack does not move: this test shows nothing")
	}
	go OnFirmStack(measure)
	if <-moved {
		t.Error("the stack moved")
	}
}

// addressOf hides the pointer from the runtime, as such libraries do.
//
//go:noinline
func addressOf(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }

//go:noinline
func dig(n int) byte {
	var frame [64]byte
	if n == 0 {
		return frame[0]
	}
	frame[n%64] = dig(n - 1)
	return frame[(n+1)%64]
}
