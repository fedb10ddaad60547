// A key-value store replicated by hashicorp/raft, in memory, and a client of it.
//
//	hashicorp_raft node ID ADDRESS,ADDRESS...
//	hashicorp_raft client ADDRESS OPERATION SIZE KEYS OUTSTANDING SECONDS
//
// A node is one member, in a process of its own. It keeps its log in memory and reaches the others
// over TCP. The node with ID 0 creates the cluster, leads it, and serves a socket. Its input has lines
// "OPERATION SIZE KEYS OUTSTANDING SECONDS": it then calls from inside. A client calls through the
// socket, with one connection. Both print a JSON object for each run. A node ends with its input.
//
// OPERATION is put or get. A put is answered when the leader has applied it. A get asks a majority
// whether the leader still leads (VerifyLeader) and then reads the leader's map.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// How long a call may take until the measurement is given up.
	callMax = 20 * time.Second
	// How long the nodes may take to elect a leader.
	electMax = 30 * time.Second
	keyBytes = 12
	frameMax = 1 << 16
	// Calls of one connection that are on the way.
	callsMax = 256
	opPut    = 0
	opGet    = 1
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(words []string) error {
	switch {
	case len(words) == 3 && words[0] == "node":
		return runNode(words[1], strings.Split(words[2], ","))
	case len(words) == 7 && words[0] == "client":
		job, err := parseJob(words[2:])
		if err != nil {
			return err
		}
		return runClient(words[1], job)
	}
	return errors.New("usage: hashicorp_raft node ID ADDRESSES | client ADDRESS OPERATION SIZE KEYS OUTSTANDING SECONDS")
}

type job struct {
	operation               byte
	size, keys, outstanding int
	length                  time.Duration
}

func parseJob(words []string) (job, error) {
	if len(words) != 5 {
		return job{}, fmt.Errorf("%q is not OPERATION SIZE KEYS OUTSTANDING SECONDS", words)
	}
	operation := slices.Index([]string{"put", "get"}, words[0])
	if operation < 0 {
		return job{}, fmt.Errorf("the operation %q is neither put nor get", words[0])
	}
	var numbers [3]int
	for i := range numbers {
		number, err := strconv.Atoi(words[1+i])
		if err != nil || number < 1 || number > 1<<20 {
			return job{}, fmt.Errorf("%q is no number from 1 to 1048576", words[1+i])
		}
		numbers[i] = number
	}
	seconds, err := strconv.ParseFloat(words[4], 64)
	if err != nil || seconds <= 0 {
		return job{}, fmt.Errorf("%q is no time in seconds", words[4])
	}
	return job{byte(operation), numbers[0], numbers[1], numbers[2], time.Duration(seconds * float64(time.Second))}, nil
}

func key(number uint64) []byte {
	return fmt.Appendf(nil, "key-%08d", number)
}

// The state: the entries, and how many changes there were.
type store struct {
	mutex    sync.RWMutex
	entries  map[string][]byte
	revision uint64
}

// Apply executes a put: its key, and its value.
func (s *store) Apply(log *raft.Log) any {
	if len(log.Data) < keyBytes {
		return errors.New("a command without a key")
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.entries[string(log.Data[:keyBytes])] = log.Data[keyBytes:]
	s.revision++
	return s.revision
}

func (s *store) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("no snapshots") }
func (s *store) Restore(io.ReadCloser) error         { return errors.New("no snapshots") }

type node struct {
	raft  *raft.Raft
	store *store
}

func runNode(id string, addresses []string) error {
	number, err := strconv.Atoi(id)
	if err != nil || number < 0 || number >= len(addresses) {
		return fmt.Errorf("the id %q is not the place of an address", id)
	}
	transport, err := raft.NewTCPTransport(addresses[number], nil, len(addresses), callMax, os.Stderr)
	if err != nil {
		return err
	}
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(id)
	config.LogLevel = "WARN"
	config.SnapshotThreshold = 1 << 62
	memory, fsm := raft.NewInmemStore(), &store{entries: map[string][]byte{}}
	it, err := raft.NewRaft(config, fsm, memory, memory, raft.NewDiscardSnapshotStore(), transport)
	if err != nil {
		return err
	}
	answer := json.NewEncoder(os.Stdout)
	n := &node{it, fsm}
	if number != 0 {
		if err := answer.Encode(map[string]string{"ready": ""}); err != nil {
			return err
		}
		io.Copy(io.Discard, os.Stdin)
		return nil
	}
	address, err := n.lead(addresses)
	if err != nil {
		return err
	}
	if err := answer.Encode(map[string]string{"ready": address}); err != nil {
		return err
	}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		job, err := parseJob(strings.Fields(orders.Text()))
		if err != nil {
			return err
		}
		found, err := measureInside(n, job)
		if err != nil {
			return err
		}
		if err := answer.Encode(found); err != nil {
			return err
		}
	}
	return nil
}

// Creates the cluster, waits until this node leads it, and serves a socket, whose address it returns.
func (n *node) lead(addresses []string) (string, error) {
	var servers []raft.Server
	for i, address := range addresses {
		servers = append(servers, raft.Server{ID: raft.ServerID(strconv.Itoa(i)), Address: raft.ServerAddress(address)})
	}
	if err := n.raft.BootstrapCluster(raft.Configuration{Servers: servers}).Error(); err != nil {
		return "", err
	}
	// Only this node knows the others, so no other asks for votes before.
	for begin := time.Now(); n.raft.State() != raft.Leader; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > electMax {
			return "", fmt.Errorf("no leader after %v", electMax)
		}
	}
	if err := n.raft.Barrier(callMax).Error(); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				if err := n.serve(connection); err != nil {
					fmt.Fprintln(os.Stderr, "a connection failed:", err)
				}
			}()
		}
	}()
	return listener.Addr().String(), nil
}

// Executes a call, and returns its reply: the revision after a put, the value of a get.
func (n *node) call(operation byte, key, value []byte) ([]byte, error) {
	if operation == opPut {
		future := n.raft.Apply(append(append(make([]byte, 0, keyBytes+len(value)), key...), value...), callMax)
		if err := future.Error(); err != nil {
			return nil, err
		}
		switch reply := future.Response().(type) {
		case uint64:
			return binary.LittleEndian.AppendUint64(nil, reply), nil
		default:
			return nil, fmt.Errorf("a put answered %v", reply)
		}
	}
	if err := n.raft.VerifyLeader().Error(); err != nil {
		return nil, err
	}
	n.store.mutex.RLock()
	defer n.store.mutex.RUnlock()
	found, ok := n.store.entries[string(key)]
	if !ok {
		return nil, fmt.Errorf("%s is not set", key)
	}
	return found, nil
}

// Serves a connection, with the frames of Spindle's example calls: a length, the name of the call, a
// byte, and the rest.
func (n *node) serve(connection net.Conn) error {
	defer connection.Close()
	in := bufio.NewReaderSize(connection, frameMax)
	replies := make(chan []byte, callsMax)
	slots := make(chan struct{}, callsMax)
	go func() {
		out := bufio.NewWriterSize(connection, frameMax)
		for reply := range replies {
			out.Write(reply)
			// Replies that are there are sent together.
			if len(replies) == 0 && out.Flush() != nil {
				connection.Close()
			}
		}
	}()
	var calls sync.WaitGroup
	defer func() { calls.Wait(); close(replies) }()
	for {
		name, operation, rest, err := readFrame(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(rest) < keyBytes || operation > opGet {
			return fmt.Errorf("a request of %d bytes with operation %d", len(rest), operation)
		}
		slots <- struct{}{}
		calls.Go(func() {
			reply, err := n.call(operation, rest[:keyBytes], rest[keyBytes:])
			if err != nil {
				replies <- frame(name, 1, []byte(err.Error()))
			} else {
				replies <- frame(name, 0, reply)
			}
			<-slots
		})
	}
}

func frame(name uint32, kind byte, parts ...[]byte) []byte {
	out := make([]byte, 4, 256)
	out = append(binary.LittleEndian.AppendUint32(out, name), kind)
	for _, part := range parts {
		out = append(out, part...)
	}
	binary.LittleEndian.PutUint32(out, uint32(len(out)-4))
	return out
}

func readFrame(in *bufio.Reader) (uint32, byte, []byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, 0, nil, err
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length < 5 || length > frameMax {
		return 0, 0, nil, fmt.Errorf("a frame of %d bytes", length)
	}
	rest := make([]byte, length)
	if _, err := io.ReadFull(in, rest); err != nil {
		return 0, 0, nil, err
	}
	return binary.LittleEndian.Uint32(rest), rest[4], rest[5:], nil
}

type figures struct {
	Calls          int     `json:"calls"`
	Seconds        float64 `json:"seconds"`
	CallsPerSecond float64 `json:"calls_per_second"`
	P50            int64   `json:"p50_ns"`
	P90            int64   `json:"p90_ns"`
	P99            int64   `json:"p99_ns"`
	P999           int64   `json:"p999_ns"`
	Max            int64   `json:"max_ns"`
}

func figuresOf(times []int64, seconds float64) *figures {
	slices.Sort(times)
	at := func(part float64) int64 { return times[int(float64(len(times)-1)*part)] }
	return &figures{len(times), seconds, float64(len(times)) / seconds, at(0.5), at(0.9), at(0.99), at(0.999), at(1)}
}

func measureInside(n *node, job job) (*figures, error) {
	value := make([]byte, job.size)
	for number := range job.keys {
		if _, err := n.call(opPut, key(uint64(number)), value); err != nil {
			return nil, err
		}
	}
	if _, err := callInside(n, job, value, job.length/10); err != nil {
		return nil, err
	}
	return callInside(n, job, value, job.length)
}

func callInside(n *node, job job, value []byte, length time.Duration) (*figures, error) {
	var group sync.WaitGroup
	var next atomic.Uint64
	times := make([][]int64, job.outstanding)
	errs := make(chan error, job.outstanding)
	begin := time.Now()
	for i := range job.outstanding {
		group.Go(func() {
			for called := begin; called.Sub(begin) < length; {
				if _, err := n.call(job.operation, key(next.Add(1)%uint64(job.keys)), value); err != nil {
					errs <- err
					return
				}
				now := time.Now()
				times[i] = append(times[i], now.Sub(called).Nanoseconds())
				called = now
			}
		})
	}
	group.Wait()
	seconds := time.Since(begin).Seconds()
	close(errs)
	if err := <-errs; err != nil {
		return nil, err
	}
	return figuresOf(slices.Concat(times...), seconds), nil
}

func runClient(address string, job job) error {
	connection, err := net.DialTimeout("tcp", address, callMax)
	if err != nil {
		return err
	}
	defer connection.Close()
	fill := job
	fill.operation, fill.outstanding, fill.length = opPut, 64, 0
	if _, err := callBySocket(connection, fill, max(job.keys, fill.outstanding)); err != nil {
		return err
	}
	warmUp := job
	warmUp.length /= 10
	if _, err := callBySocket(connection, warmUp, 0); err != nil {
		return err
	}
	found, err := callBySocket(connection, job, 0)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// Calls until the time is over, and at least so often.
func callBySocket(connection net.Conn, job job, atLeast int) (*figures, error) {
	in, out := bufio.NewReaderSize(connection, frameMax), bufio.NewWriterSize(connection, frameMax)
	value, called := make([]byte, job.size), make([]time.Time, job.outstanding)
	if job.operation == opGet {
		value = nil
	}
	var next uint64
	ask := func(name uint32, now time.Time) {
		called[name] = now
		out.Write(frame(name, job.operation, key(next%uint64(job.keys)), value))
		next++
	}
	begin := time.Now()
	for name := range job.outstanding {
		ask(uint32(name), begin)
	}
	var times []int64
	for left := job.outstanding; left > 0; {
		// Requests are sent together once all replies that are there have been read.
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return nil, err
			}
		}
		connection.SetReadDeadline(time.Now().Add(callMax))
		name, kind, rest, err := readFrame(in)
		if err != nil {
			return nil, err
		}
		if kind != 0 || int(name) >= job.outstanding {
			return nil, fmt.Errorf("the reply to call %d: %s", name, rest)
		}
		if want := map[byte]int{opPut: 8, opGet: job.size}[job.operation]; len(rest) != want {
			return nil, fmt.Errorf("a reply of %d bytes, not %d", len(rest), want)
		}
		now := time.Now()
		times = append(times, now.Sub(called[name]).Nanoseconds())
		if now.Sub(begin) < job.length || len(times)+left <= atLeast {
			ask(name, now)
		} else {
			left--
		}
	}
	return figuresOf(times, time.Since(begin).Seconds()), nil
}
