// Load generator for a Kubernetes API server: a fixed number of kept-alive TLS connections for a fixed time.
//
// GET repeats one path; POST creates ConfigMaps with fresh names. Every request carries a bearer token. Answers other
// than 2xx are counted as errors and not as requests. Prints one JSON object. Used by bench/http_vs_kube.py, which
// points it at our server and at kube-apiserver in the same run.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"
)

type tally struct {
	times  []time.Duration
	errors int
	first  string
}

func main() {
	url := flag.String("url", "", "what to request")
	method := flag.String("method", "GET", "GET, or POST to create ConfigMaps")
	tokenFile := flag.String("token-file", "", "file with the bearer token")
	caFile := flag.String("ca", "", "the server's CA certificate")
	connections := flag.Int("connections", 16, "kept-alive connections, one request at a time on each")
	seconds := flag.Float64("seconds", 5, "how long")
	prefix := flag.String("prefix", "load", "names of created objects start with this")
	flag.Parse()

	token, err := os.ReadFile(*tokenFile)
	check(err)
	pem, err := os.ReadFile(*caFile)
	check(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		check(fmt.Errorf("%s holds no certificate", *caFile))
	}
	bearer := "Bearer " + strings.TrimSpace(string(token))

	results := make([]tally, *connections)
	start := time.Now()
	deadline := start.Add(time.Duration(*seconds * float64(time.Second)))
	var group sync.WaitGroup
	for worker := range *connections {
		group.Add(1)
		go func() {
			defer group.Done()
			// A transport of its own keeps each worker on its own connection; a configured TLS client stays on HTTP/1.1.
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
			results[worker] = work(client, *method, *url, bearer, fmt.Sprintf("%s-%d", *prefix, worker), deadline)
		}()
	}
	group.Wait()
	report(results, time.Since(start))
}

func work(client *http.Client, method, url, bearer, prefix string, deadline time.Time) tally {
	var mine tally
	for number := 0; time.Now().Before(deadline); number++ {
		var body io.Reader
		if method == "POST" {
			body = strings.NewReader(fmt.Sprintf(
				`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d"},"data":{"key":"value"}}`, prefix, number))
		}
		request, err := http.NewRequest(method, url, body)
		check(err)
		request.Header.Set("Authorization", bearer)
		request.Header.Set("Accept", "application/json")
		if body != nil {
			request.Header.Set("Content-Type", "application/json")
		}
		began := time.Now()
		answer, err := client.Do(request)
		if err != nil {
			mine.fail(err.Error())
			continue
		}
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode >= 300 {
			mine.fail(fmt.Sprintf("%d %s", answer.StatusCode, text))
			continue
		}
		mine.times = append(mine.times, time.Since(began))
	}
	return mine
}

func (t *tally) fail(text string) {
	t.errors++
	if t.first == "" {
		t.first = text
	}
}

func report(results []tally, took time.Duration) {
	var all []time.Duration
	errors, first := 0, ""
	for _, result := range results {
		all = append(all, result.times...)
		errors += result.errors
		if first == "" {
			first = result.first
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	at := func(share float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"requests": len(all), "errors": errors, "first_error": first,
		"per_second": float64(len(all)) / took.Seconds(), "p50_ms": at(0.5), "p99_ms": at(0.99),
	}))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
