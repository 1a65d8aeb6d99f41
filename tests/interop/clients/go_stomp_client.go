// go-stomp. Orders: see adapter.py.
package main

import (
	"bufio"
	"encoding/json"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-stomp/stomp/v3"
	"github.com/go-stomp/stomp/v3/frame"
)

type order struct {
	Do, Link, Host, Login, Passcode, Vhost, Version string
	Destination, Id, Ack, Handle, Transaction       string
	Port, Count                                     int
	Receipt                                         bool
	HeartBeat                                       [2]int `json:"heart_beat"`
	Headers                                         map[string]string
	Body                                            []byte
}

type (
	object map[string]any
	option = func(*frame.Frame) error
)

type link struct {
	*stomp.Conn
	messages      []*stomp.Message
	subscriptions map[string]*stomp.Subscription
	waiting       map[string]chan *stomp.Message
	transactions  map[string]*stomp.Transaction
}

var (
	links = map[string]*link{}
	modes = map[string]stomp.AckMode{
		"auto": stomp.AckAuto, "client": stomp.AckClient, "client-individual": stomp.AckClientIndividual}
)

func open(o order) (any, error) {
	send, receive := time.Duration(o.HeartBeat[0])*time.Millisecond, time.Duration(o.HeartBeat[1])*time.Millisecond
	conn, err := stomp.Dial("tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port)),
		stomp.ConnOpt.Login(o.Login, o.Passcode), stomp.ConnOpt.Host(o.Vhost), stomp.ConnOpt.HeartBeat(send, receive),
		stomp.ConnOpt.AcceptVersion(stomp.Version(o.Version)), stomp.ConnOpt.RcvReceiptTimeout(30*time.Second))
	if err != nil {
		return nil, err
	}
	links[o.Link] = &link{conn, nil, map[string]*stomp.Subscription{}, map[string]chan *stomp.Message{},
		map[string]*stomp.Transaction{}}
	return object{"version": conn.Version()}, nil
}

func (l *link) send(o order) error {
	kind, options := o.Headers["content-type"], []option{}
	delete(o.Headers, "content-type")
	for name, value := range o.Headers {
		options = append(options, stomp.SendOpt.Header(name, value))
	}
	if o.Receipt {
		options = append(options, stomp.SendOpt.Receipt)
	}
	if o.Transaction != "" {
		return l.transactions[o.Transaction].Send(o.Destination, kind, o.Body, options...)
	}
	return l.Send(o.Destination, kind, o.Body, options...)
}

func (l *link) subscribe(o order) error {
	options := []option{stomp.SubscribeOpt.Id(o.Id)} // it takes a RECEIPT for that of UNSUBSCRIBE
	for name, value := range o.Headers {
		options = append(options, stomp.SubscribeOpt.Header(name, value))
	}
	subscription, err := l.Subscribe(o.Destination, modes[o.Ack], options...)
	if err == nil {
		waiting := make(chan *stomp.Message, 10_000)
		l.subscriptions[o.Id], l.waiting[o.Id] = subscription, waiting
		go func() { // or its own sends would wait
			for message := range subscription.C {
				if message.Err == nil {
					waiting <- message
				}
			}
		}()
	}
	return err
}

func (l *link) receive(o order) any {
	taken := []object{}
	for len(taken) < o.Count && len(l.waiting[o.Id]) > 0 {
		message, headers := <-l.waiting[o.Id], map[string]string{}
		for i := message.Header.Len() - 1; i >= 0; i-- {
			name, value := message.Header.GetAt(i)
			headers[name] = value
		}
		taken = append(taken, object{"handle": strconv.Itoa(len(l.messages)), "headers": headers, "body": message.Body})
		l.messages = append(l.messages, message)
	}
	return object{"messages": taken}
}

func (l *link) settle(o order) error {
	number, _ := strconv.Atoi(o.Handle)
	calls := map[string]func(*stomp.Message) error{"ack": l.Ack, "nack": l.Nack}
	if transaction := l.transactions[o.Transaction]; transaction != nil {
		calls = map[string]func(*stomp.Message) error{"ack": transaction.Ack, "nack": transaction.Nack}
	}
	return calls[o.Do](l.messages[number])
}

func (l *link) isAlive() bool {
	for _, subscription := range l.subscriptions { // the connection ends them
		if !subscription.Active() {
			return false
		}
	}
	return true
}

func obey(o order) (any, error) {
	l, err := links[o.Link], error(nil)
	switch o.Do {
	case "about":
		build, _ := debug.ReadBuildInfo()
		return object{"library": build.Deps[0].Version}, nil
	case "open":
		return open(o)
	case "receive":
		return l.receive(o), nil
	case "alive":
		return object{"alive": l.isAlive()}, nil
	case "send":
		err = l.send(o)
	case "subscribe":
		err = l.subscribe(o)
	case "ack", "nack":
		err = l.settle(o)
	case "unsubscribe":
		err = l.subscriptions[o.Id].Unsubscribe()
	case "begin":
		l.transactions[o.Transaction], err = l.BeginWithError()
	case "commit":
		err = l.transactions[o.Transaction].Commit()
	case "abort":
		err = l.transactions[o.Transaction].Abort()
	case "close":
		err = l.Disconnect()
	}
	return object{}, err
}

func main() {
	answers := json.NewEncoder(os.Stdout)
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var o order
		if err = json.Unmarshal(line, &o); err != nil {
			panic(err)
		}
		if done, err := obey(o); err != nil {
			answers.Encode(object{"error": err.Error()})
		} else {
			answers.Encode(object{"ok": done})
		}
	}
}
