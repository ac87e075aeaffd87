// gofiles puts a server through the ordinary work of a Go program that uses go-smb2: each step prints "ok NAME" or
// "FAIL NAME: reason", and the exit status is 1 when any failed.
//
// usage: gofiles -addr host:port -share S -user U -pass P [-sign] [-skip STEP | -crowd CLIENTS]
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"sort"
	"sync"
	"time"

	smb2 "github.com/cloudsoda/go-smb2"
)

type step struct {
	name string
	run  func(*smb2.Share) error
}

var (
	addr  = flag.String("addr", "127.0.0.1:445", "server")
	share = flag.String("share", "files", "share")
	user  = flag.String("user", "alice", "user")
	pass  = flag.String("pass", "", "password")
	sign  = flag.Bool("sign", false, "require signing")
	skip  = flag.String("skip", "", "a step to leave out")
	crowd = flag.Int("crowd", 0, "instead of the steps: this many clients at once, each with many requests in flight")
)

func dial(ctx context.Context, password string) (*smb2.Session, error) {
	d := &smb2.Dialer{
		Negotiator: smb2.Negotiator{RequireMessageSigning: *sign},
		Initiator:  &smb2.NTLMInitiator{User: *user, Password: password},
	}
	return d.Dial(ctx, *addr)
}

func content(seed int64, size int) []byte {
	b := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func readWrite(s *smb2.Share) error {
	for _, size := range []int{0, 1, 4095, 65536, 65537, 3_000_001} {
		want := content(int64(size), size)
		if err := s.WriteFile("go-data", want, 0o644); err != nil {
			return err
		}
		got, err := s.ReadFile("go-data")
		if err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("%d bytes came back different", size)
		}
		st, err := s.Stat("go-data")
		if err != nil || st.Size() != int64(size) {
			return fmt.Errorf("stat: %v %v", st, err)
		}
	}
	return s.Remove("go-data")
}

func randomAccess(s *smb2.Share) error {
	f, err := s.Create("go-random")
	if err != nil {
		return err
	}
	defer f.Close()
	model := make([]byte, 1<<20)
	r := rand.New(rand.NewSource(1))
	for range 400 {
		at, n := r.Intn(len(model)), r.Intn(100_000)
		if at+n > len(model) {
			n = len(model) - at
		}
		if r.Intn(2) == 0 {
			r.Read(model[at : at+n])
			if _, err := f.WriteAt(model[at:at+n], int64(at)); err != nil {
				return err
			}
			continue
		}
		got := make([]byte, n)
		if m, err := f.ReadAt(got, int64(at)); err != nil && err != io.EOF {
			return err
		} else if !bytes.Equal(got[:m], model[at:at+m]) {
			return fmt.Errorf("%d bytes at %d differ", n, at)
		}
	}
	return nil
}

func appendAndTruncate(s *smb2.Share) error {
	f, err := s.OpenFile("go-append", os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write([]byte("0123456789")); err != nil {
		return err
	}
	if err := f.Truncate(4); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if _, err := f.Write([]byte("xy")); err != nil {
		return err
	}
	got, err := s.ReadFile("go-append")
	if err != nil {
		return err
	}
	if string(got) != "0123xy" {
		return fmt.Errorf("got %q", got)
	}
	return f.Sync()
}

func renameAndRemove(s *smb2.Share) error {
	if err := s.MkdirAll("go-a/b/c", 0o755); err != nil {
		return err
	}
	if err := s.WriteFile("go-a/b/c/f", []byte("x"), 0o644); err != nil {
		return err
	}
	if err := s.Rename("go-a/b/c/f", "go-a/g"); err != nil {
		return err
	}
	if _, err := s.Stat("go-a/b/c/f"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the old name: %v", err)
	}
	if err := s.Remove("go-a"); err == nil {
		return errors.New("a directory that is not empty was removed")
	}
	if err := s.RemoveAll("go-a"); err != nil {
		return err
	}
	_, err := s.Stat("go-a")
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("after RemoveAll: %v", err)
	}
	return nil
}

func exclusiveCreate(s *smb2.Share) error {
	f, err := s.OpenFile("go-excl", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	f.Close()
	if _, err := s.OpenFile("go-excl", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("second exclusive create: %v", err)
	}
	return s.Remove("go-excl")
}

func tenThousand(s *smb2.Share) error {
	if err := s.Mkdir("go-many", 0o755); err != nil {
		return err
	}
	const count = 10_000
	numbers, failed := make(chan int), make(chan error, 16)
	var wg sync.WaitGroup
	for range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := range numbers {
				if err := s.WriteFile(fmt.Sprintf("go-many/entry-%05d", n), []byte{byte(n)}, 0o644); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		}()
	}
	for n := range count {
		numbers <- n
	}
	close(numbers)
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	entries, err := s.ReadDir("go-many")
	if err != nil {
		return err
	}
	if len(entries) != count {
		return fmt.Errorf("%d entries", len(entries))
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	sort.Strings(names)
	for n, name := range names {
		if name != fmt.Sprintf("entry-%05d", n) {
			return fmt.Errorf("entry %d is %s", n, name)
		}
	}
	return s.RemoveAll("go-many")
}

func unicode(s *smb2.Share) error {
	for _, name := range []string{"Ünïcödé", "Привет", "漢字とかな", "emoji 😀", "سلام"} {
		if err := s.WriteFile(name, []byte(name), 0o644); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		entries, err := s.ReadDir(".")
		if err != nil {
			return err
		}
		seen := false
		for _, e := range entries {
			seen = seen || e.Name() == name
		}
		if !seen {
			return fmt.Errorf("%s is not listed", name)
		}
		if err := s.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

func sparse(s *smb2.Share) error {
	f, err := s.Create("go-sparse")
	if err != nil {
		return err
	}
	defer f.Close()
	const far = 4<<30 + 4096
	if _, err := f.WriteAt([]byte("end"), far); err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != far+3 {
		return fmt.Errorf("size %d", st.Size())
	}
	hole := make([]byte, 100)
	if _, err := f.ReadAt(hole, far-100); err != nil || !bytes.Equal(hole, make([]byte, 100)) {
		return fmt.Errorf("the hole: %v %v", hole, err)
	}
	end := make([]byte, 3)
	if _, err := f.ReadAt(end, far); err != nil && err != io.EOF || string(end) != "end" {
		return fmt.Errorf("the end: %q %v", end, err)
	}
	return nil
}

func times(s *smb2.Share) error {
	if err := s.WriteFile("go-times", nil, 0o644); err != nil {
		return err
	}
	when := time.Date(2021, 2, 3, 4, 5, 6, 0, time.UTC)
	if err := s.Chtimes("go-times", when, when); err != nil {
		return err
	}
	st, err := s.Stat("go-times")
	if err != nil {
		return err
	}
	if !st.ModTime().Equal(when) {
		return fmt.Errorf("modified %v", st.ModTime())
	}
	return nil
}

func readOnly(s *smb2.Share) error {
	if err := s.WriteFile("go-ro", []byte("x"), 0o644); err != nil {
		return err
	}
	if err := s.Chmod("go-ro", 0o444); err != nil {
		return err
	}
	if f, err := s.OpenFile("go-ro", os.O_WRONLY, 0); err == nil {
		f.Close()
		return errors.New("a read-only file was opened for writing")
	}
	if err := s.Chmod("go-ro", 0o644); err != nil {
		return err
	}
	return s.Remove("go-ro")
}

// Many connections at once, each with its own file, each compared by hash.
func connections(*smb2.Share) error {
	var wg sync.WaitGroup
	failed := make(chan error, 32)
	for n := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			failed <- func() error {
				session, err := dial(context.Background(), *pass)
				if err != nil {
					return err
				}
				defer session.Logoff()
				s, err := session.Mount(*share)
				if err != nil {
					return err
				}
				defer s.Umount()
				name, want := fmt.Sprintf("go-conn-%d", n), content(int64(n), 500_000)
				if err := s.WriteFile(name, want, 0o644); err != nil {
					return err
				}
				got, err := s.ReadFile(name)
				if err != nil {
					return err
				}
				if sha256.Sum256(got) != sha256.Sum256(want) {
					return fmt.Errorf("%s differs", name)
				}
				return s.Remove(name)
			}()
		}()
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// A crowd: every client is connected before any begins; each writes its file in pieces that are all in flight at once, reads
// it back twice over in the same way, and compares.
func inCrowd(number int, ready *sync.WaitGroup) error {
	const piece, pieces = 64 << 10, 16
	s, done, err := func() (*smb2.Share, func(), error) {
		defer ready.Done()
		session, err := dial(context.Background(), *pass)
		if err != nil {
			return nil, nil, fmt.Errorf("logon: %w", err)
		}
		s, err := session.Mount(*share)
		if err != nil {
			session.Logoff()
			return nil, nil, fmt.Errorf("mount: %w", err)
		}
		return s, func() { s.Umount(); session.Logoff() }, nil
	}()
	if err != nil {
		return err
	}
	defer done()
	ready.Wait()
	name, want := fmt.Sprintf("go-crowd-%d", number), content(int64(number), piece*pieces)
	f, err := s.Create(name)
	if err != nil {
		return err
	}
	defer s.Remove(name)
	defer f.Close()
	all := func(what func(at int) error) error {
		results := make(chan error, pieces)
		for n := range pieces {
			go func() { results <- what(n * piece) }()
		}
		var first error
		for range pieces {
			if err := <-results; err != nil && first == nil {
				first = err
			}
		}
		return first
	}
	if err := all(func(at int) error { _, err := f.WriteAt(want[at:at+piece], int64(at)); return err }); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for range 2 {
		if err := all(func(at int) error {
			got := make([]byte, piece)
			if _, err := f.ReadAt(got, int64(at)); err != nil && err != io.EOF {
				return fmt.Errorf("read: %w", err)
			}
			if !bytes.Equal(got, want[at:at+piece]) {
				return fmt.Errorf("%s differs at %d", name, at)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

func runCrowd(count int) int {
	var ready sync.WaitGroup
	ready.Add(count)
	results := make(chan error, count)
	for n := range count {
		go func() { results <- inCrowd(n, &ready) }()
	}
	failures := 0
	for range count {
		if err := <-results; err != nil {
			failures++
			if failures <= 5 {
				fmt.Println("FAIL crowd:", err)
			}
		}
	}
	fmt.Printf("%d clients, %d failed\n", count, failures)
	return min(failures, 1)
}

func wrongPassword(*smb2.Share) error {
	s, err := dial(context.Background(), *pass+"x")
	if err == nil {
		s.Logoff()
		return errors.New("it was taken")
	}
	return nil
}

func wrongShare(*smb2.Share) error {
	s, err := dial(context.Background(), *pass)
	if err != nil {
		return err
	}
	defer s.Logoff()
	if _, err := s.Mount("nowhere"); err == nil {
		return errors.New("it was mounted")
	}
	return nil
}

func shareNames(*smb2.Share) error {
	s, err := dial(context.Background(), *pass)
	if err != nil {
		return err
	}
	defer s.Logoff()
	names, err := s.ListSharenames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == *share {
			return nil
		}
	}
	return fmt.Errorf("not in %v", names)
}

func freeSpace(s *smb2.Share) error {
	st, err := s.Statfs(".")
	if err != nil {
		return err
	}
	if st.TotalBlockCount() == 0 || st.FreeBlockCount() > st.TotalBlockCount() {
		return fmt.Errorf("%d of %d free", st.FreeBlockCount(), st.TotalBlockCount())
	}
	return nil
}

func main() {
	flag.Parse()
	if *crowd > 0 {
		os.Exit(runCrowd(*crowd))
	}
	session, err := dial(context.Background(), *pass)
	if err != nil {
		fmt.Println("FAIL logon:", err)
		os.Exit(1)
	}
	defer session.Logoff()
	mounted, err := session.Mount(*share)
	if err != nil {
		fmt.Println("FAIL mount:", err)
		os.Exit(1)
	}
	failed := false
	for _, s := range []step{
		{"read-write", readWrite}, {"random-access", randomAccess}, {"append-truncate", appendAndTruncate},
		{"rename-remove", renameAndRemove}, {"exclusive-create", exclusiveCreate}, {"ten-thousand", tenThousand},
		{"unicode", unicode}, {"sparse", sparse}, {"times", times}, {"read-only", readOnly},
		{"connections", connections}, {"wrong-password", wrongPassword}, {"wrong-share", wrongShare},
		{"share-names", shareNames}, {"free-space", freeSpace},
	} {
		if s.name == *skip {
			continue
		}
		if err := s.run(mounted); err != nil {
			fmt.Printf("FAIL %s: %v\n", s.name, err)
			failed = true
		} else {
			fmt.Println("ok", s.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
