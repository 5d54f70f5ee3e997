package xdp_test

import (
	"fmt"
	"runtime"
	"time"

	"blast/xdp"
)

// One interface, two queues, one locked thread per queue that sends and receives. The device is closed first: redirecting ends and the
// program is off before any socket goes.
func Example() {
	device, err := xdp.Open(xdp.DeviceConfig{Interface: "eth0", Receive: true, Ports: []uint16{7001}})
	if err != nil {
		fmt.Println(err)
		return
	}
	sockets := make(chan *xdp.Socket, 2)
	for queue := range cap(sockets) {
		go func() {
			runtime.LockOSThread()
			s, err := device.Open(xdp.SocketConfig{Queue: queue})
			if err != nil {
				fmt.Println(err)
				sockets <- nil
				return
			}
			for end := time.Now().Add(time.Second); time.Now().Before(end); {
				frames := s.Reserve(64)
				for _, f := range frames {
					f.Len = 60 // a whole frame in f.Data, from the Ethernet header on
				}
				if _, err := s.Commit(len(frames)); err != nil {
					break
				}
				if _, err := s.Reap(); err != nil { // Sent and Dropped
					break
				}
				for range s.Receive(64) { // frames, valid until the next Receive
				}
			}
			sockets <- s
		}()
	}
	var open []*xdp.Socket
	for range cap(sockets) {
		if s := <-sockets; s != nil {
			open = append(open, s)
		}
	}
	_ = device.Close()
	for _, s := range open {
		_ = s.Close()
	}
}
