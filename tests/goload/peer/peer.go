// Package peer is the server that a load program drives: what its command line says of it, and sessions with it.
package peer

import (
	"context"
	"flag"

	smb2 "github.com/cloudsoda/go-smb2"
)

// Server is one server and the account to use there.
type Server struct {
	Addr, Share, User, Pass *string
	// Pid is the server's process on this machine.
	Pid *int
}

// Flags adds the server to the command line: -addr host:port -share S -user U -pass P -pid SERVERPID.
func Flags() Server {
	return Server{
		Addr:  flag.String("addr", "127.0.0.1:445", "the server"),
		Share: flag.String("share", "files", "its share"),
		User:  flag.String("user", "alice", "the user"),
		Pass:  flag.String("pass", "", "the user's password"),
		Pid:   flag.Int("pid", 0, "the server's process"),
	}
}

// LogOn makes a session on a connection of its own, and connects it to the share.
func (s Server) LogOn() (*smb2.Session, *smb2.Share, error) {
	dialer := &smb2.Dialer{Initiator: &smb2.NTLMInitiator{User: *s.User, Password: *s.Pass}}
	session, err := dialer.Dial(context.Background(), *s.Addr)
	if err != nil {
		return nil, nil, err
	}
	share, err := session.Mount(*s.Share)
	return session, share, err
}
