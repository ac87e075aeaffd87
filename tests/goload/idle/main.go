// goidle logs on n times to an SMB server with a third-party client (go-smb2), each time on a connection of its own, leaves them
// all idle, and says how much memory the server's process holds then. One more session must still be answered.
//
// usage: goidle -addr host:port -share S -user U -pass P -n 10000 -pid SERVERPID
//
// "idle sessions=10000 before_mib=21.3 rss_mib=310.2 per_session_kib=29.6 answered=1.2ms"
package main

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"causeway-peers/peer"
	"causeway-peers/procs"

	smb2 "github.com/cloudsoda/go-smb2"
)

func main() {
	server := peer.Flags()
	n := flag.Int("n", 10000, "connections")
	flag.Parse()
	before := procs.RSS(*server.Pid)
	sessions := make([]*smb2.Session, *n)
	var next atomic.Int64
	var all sync.WaitGroup
	for q := 0; q < 16; q++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := int(next.Add(1)) - 1; i < *n; i = int(next.Add(1)) - 1 {
				session, _, err := server.LogOn()
				must(err)
				sessions[i] = session
			}
		}()
	}
	all.Wait()
	time.Sleep(time.Second)
	rss := procs.RSS(*server.Pid)
	began := time.Now()
	_, fs, err := server.LogOn()
	must(err)
	_, err = fs.ReadDir("")
	must(err)
	fmt.Printf("idle sessions=%d before_mib=%.1f rss_mib=%.1f per_session_kib=%.1f answered=%v\n", *n, before/1024, rss/1024,
		(rss-before)/float64(*n), time.Since(began))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "goidle:", err)
		os.Exit(1)
	}
}
