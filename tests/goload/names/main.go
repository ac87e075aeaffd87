// gonames makes, looks at, lists, renames and deletes files of an SMB server with a third-party client (go-smb2), and says
// what each operation costs the server.
//
// usage: gonames -addr host:port -share S -user U -pass P -n 10000 -qd 32 -pid SERVERPID
//
// A line for each kind of operation: "create ops=10000 ops/s=5231 server_cpu_us/op=61.2 client_cpu_us/op=80.3". An operation
// of "list" is one listing of all n files.
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
)

const listings = 20

func main() {
	server := peer.Flags()
	n := flag.Int("n", 10000, "files")
	qd := flag.Int("qd", 32, "operations at once")
	flag.Parse()
	session, fs, err := server.LogOn()
	must(err)
	folder := fmt.Sprintf("names-%d", os.Getpid())
	must(fs.Mkdir(folder, 0o755))
	name := func(i int) string { return fmt.Sprintf("%s\\file-%07d.dat", folder, i) }
	renamed := func(i int) string { return fmt.Sprintf("%s\\renamed-%07d.dat", folder, i) }

	run := func(what string, count, atOnce int, op func(i int) error) {
		cpu, mine, began := procs.CPU(*server.Pid), procs.CPU(os.Getpid()), time.Now()
		var next atomic.Int64
		var all sync.WaitGroup
		for q := 0; q < atOnce; q++ {
			all.Add(1)
			go func() {
				defer all.Done()
				for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
					must(op(i))
				}
			}()
		}
		all.Wait()
		took, ops := time.Since(began).Seconds(), float64(count)
		fmt.Printf("%s ops=%d ops/s=%.0f server_cpu_us/op=%.1f client_cpu_us/op=%.1f\n", what, count, ops/took,
			(procs.CPU(*server.Pid)-cpu)*1e6/ops, (procs.CPU(os.Getpid())-mine)*1e6/ops)
	}
	run("create", *n, *qd, func(i int) error {
		f, err := fs.Create(name(i))
		if err != nil {
			return err
		}
		return f.Close()
	})
	run("stat", *n, *qd, func(i int) error {
		_, err := fs.Stat(name(i))
		return err
	})
	run("list", listings, 1, func(int) error {
		found, err := fs.ReadDir(folder)
		if err == nil && len(found) != *n {
			err = fmt.Errorf("%d entries are listed", len(found))
		}
		return err
	})
	run("rename", *n, *qd, func(i int) error { return fs.Rename(name(i), renamed(i)) })
	run("delete", *n, *qd, func(i int) error { return fs.Remove(renamed(i)) })
	must(fs.Remove(folder))
	must(session.Logoff())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gonames:", err)
		os.Exit(1)
	}
}
