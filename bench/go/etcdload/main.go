// Etcdload writes to etcd as kube-apiserver does: a transaction that compares the key's revision and puts the value.
// Each client writes keys of its own, one write at a time, and prints one JSON line with the rate and latencies.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

type result struct {
	Clients int     `json:"clients"`
	Writes  int     `json:"writes"`
	Rate    float64 `json:"rate"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func main() {
	endpoint := flag.String("endpoint", "", "address of etcd")
	clients := flag.Int("clients", 1, "concurrent writers")
	seconds := flag.Float64("seconds", 3, "how long to write")
	size := flag.Int("size", 3784, "bytes of each value")
	keys := flag.Int("keys", 50, "keys of each writer")
	flag.Parse()

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		fail(err)
	}
	defer client.Close()

	latencies := make([][]time.Duration, *clients)
	begin := time.Now()
	deadline := begin.Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	for number := range *clients {
		group.Add(1)
		go func() {
			defer group.Done()
			latencies[number] = write(client, number, *keys, *size, deadline)
		}()
	}
	group.Wait()
	elapsed := time.Since(begin).Seconds()

	var all []time.Duration
	for _, some := range latencies {
		all = append(all, some...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	line, err := json.Marshal(result{
		Clients: *clients,
		Writes:  len(all),
		Rate:    float64(len(all)) / elapsed,
		P50:     float64(all[len(all)/2].Microseconds()),
		P99:     float64(all[len(all)*99/100].Microseconds()),
	})
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

// write overwrites the writer's keys in turn until the deadline and returns how long each write took.
func write(client *clientv3.Client, number, keys, size int, deadline time.Time) []time.Duration {
	value := make([]byte, size)
	if _, err := rand.Read(value); err != nil {
		fail(err)
	}
	text := string(value)
	revisions := make([]int64, keys)
	var latencies []time.Duration
	for turn := 0; time.Now().Before(deadline); turn++ {
		slot := turn % keys
		key := fmt.Sprintf("/registry/configmaps/default/writer-%d-%d", number, slot)
		begin := time.Now()
		compare := clientv3.Compare(clientv3.ModRevision(key), "=", revisions[slot])
		answer, err := client.Txn(context.Background()).If(compare).Then(clientv3.OpPut(key, text)).Commit()
		if err != nil {
			fail(err)
		}
		if !answer.Succeeded {
			fail(fmt.Errorf("%s was changed by somebody else", key))
		}
		latencies = append(latencies, time.Since(begin))
		revisions[slot] = answer.Header.Revision
	}
	return latencies
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
