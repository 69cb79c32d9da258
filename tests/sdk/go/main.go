// Runs the cases.
//
// `--list` prints their names and the entities that they want. Without it the program
// reads a JSON object from standard input, the names of cases and where each namespace
// is, and prints a line of JSON for each case as soon as it is done.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"time"
)

// Many cases only wait for a lock to end; more at once would be slow, not wrong.
const atOnce = 16
const caseMax = 45 * time.Second

type wanted struct {
	Names   []string          `json:"names"`
	Servers map[string]Server `json:"servers"`
}

type result struct {
	Name    string  `json:"name"`
	Failure *string `json:"failure"`
	Ms      int64   `json:"ms"`
}

// run runs a case; what it panics with is its failure.
func run(entry Case, server Server) (failure *string) {
	ctx, cancel := context.WithTimeout(context.Background(), caseMax)
	defer cancel()
	defer func() {
		if reason := recover(); reason != nil {
			text := fmt.Sprintf("%v\n%s", reason, debug.Stack())
			failure = &text
		}
	}()
	bus := newBus(ctx, entry.Name, server)
	defer bus.close()
	entry.body(bus)
	return nil
}

func runAll() {
	var asked wanted
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	names := make(chan string)
	var printing sync.Mutex
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for name := range names {
				entry, started := cases[name], time.Now()
				failure := run(entry, asked.Servers[entry.Namespace])
				took := time.Since(started).Milliseconds()
				printing.Lock()
				must(json.NewEncoder(os.Stdout).Encode(result{name, failure, took}))
				printing.Unlock()
			}
		})
	}
	for _, name := range asked.Names {
		names <- name
	}
	close(names)
	workers.Wait()
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "--list" {
		list := []Case{}
		for _, name := range order {
			list = append(list, cases[name])
		}
		must(json.NewEncoder(os.Stdout).Encode(list))
		return
	}
	runAll()
}
