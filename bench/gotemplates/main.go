// Renders templates as the Go operator does and says how long that takes. Cold is what the operator does for every key of
// every reconcile: values to a map of strings, a new template with the option, its 227 functions from one map that is
// built at the start of the process, the delimiters, parsing, executing into a buffer. Cached is executing a parsed
// template. Both start from values in bytes and end with bytes, as a Secret has them. Standard library only.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"text/template"
	"time"
)

type request struct {
	Template string            `json:"template"`
	Data     map[string]string `json:"data"`
}

type answer struct {
	Output string  `json:"output"`
	Cold   float64 `json:"cold"`
	Cached float64 `json:"cached"`
	Failed bool    `json:"failed"`
}

func texts(list any) []string {
	if words, ok := list.([]string); ok {
		return words
	}
	var out []string
	for _, item := range list.([]any) {
		out = append(out, fmt.Sprint(item))
	}
	return out
}

func functions() template.FuncMap {
	table := template.FuncMap{
		"splitList":  func(sep, text string) []string { return strings.Split(text, sep) },
		"join":       func(sep string, list any) string { return strings.Join(texts(list), sep) },
		"replace":    func(old, new, text string) string { return strings.ReplaceAll(text, old, new) },
		"trim":       strings.TrimSpace,
		"upper":      strings.ToUpper,
		"lower":      strings.ToLower,
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"trimPrefix": func(prefix, text string) string { return strings.TrimPrefix(text, prefix) },
		"b64enc":     func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) },
		"b64dec": func(text string) string {
			raw, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return err.Error()
			}
			return string(raw)
		},
		"fromJson": func(text string) any {
			var value any
			_ = json.Unmarshal([]byte(text), &value)
			return value
		},
		"toJson": func(value any) string {
			raw, _ := json.Marshal(value)
			return string(raw)
		},
		"toPrettyJson": func(value any) string {
			raw, _ := json.MarshalIndent(value, "", "  ")
			return string(raw)
		},
		"dict": func(pairs ...any) map[string]any {
			out := map[string]any{}
			for at := 0; at+1 < len(pairs); at += 2 {
				out[fmt.Sprint(pairs[at])] = pairs[at+1]
			}
			return out
		},
		"set": func(dict map[string]any, key string, value any) map[string]any {
			dict[key] = value
			return dict
		},
		"list":  func(items ...any) []any { return items },
		"quote": func(value any) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"default": func(fallback any, given any) any {
			if given == nil || given == "" {
				return fallback
			}
			return given
		},
		"sortAlpha": func(list any) []string {
			out := append([]string{}, texts(list)...)
			sort.Strings(out)
			return out
		},
		"indent": func(spaces int, text string) string {
			pad := strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", "\n"+pad)
		},
	}
	for number := len(table); number < 227; number++ {
		table[fmt.Sprintf("function%d", number)] = shapes[number%len(shapes)]
	}
	return table
}

// shapes are the signatures the operator's other functions have: registering looks at the type of each one.
var shapes = []any{
	strings.ToUpper,
	func(value any) string { return "" },
	func(first, second string) string { return "" },
	func(value any, more ...any) int64 { return 0 },
	func(value any) (string, error) { return "", nil },
	func(items ...any) string { return "" },
	func(first, second string) bool { return false },
	func(value any) []string { return nil },
	func(text string) (any, error) { return nil, nil },
	func(list any, value any) []any { return nil },
	func(count int, text string) string { return "" },
	func(dict map[string]any, more ...map[string]any) (any, error) { return nil, nil },
	func(expression, text string, count int) ([]string, error) { return nil, nil },
	func(layout string, moment time.Time) string { return "" },
	func(value any) float64 { return 0 },
	func(password, certificate, key string) (string, error) { return "", nil },
	func(count int) string { return "" },
	func(dict map[string]any, keys ...string) map[string]any { return nil },
}

func cold(text string, values map[string][]byte) ([]byte, error) {
	data := textsOf(values)
	parsed, err := parse(text)
	if err != nil {
		return nil, err
	}
	return execute(parsed, data)
}

func parse(text string) (*template.Template, error) {
	return template.New("tpl").Option("missingkey=error").Funcs(table).Delims("{{", "}}").Parse(text)
}

func textsOf(values map[string][]byte) map[string]string {
	data := make(map[string]string, len(values))
	for key := range values {
		data[key] = string(values[key])
	}
	return data
}

func execute(parsed *template.Template, data map[string]string) ([]byte, error) {
	out := bytes.NewBuffer(nil)
	err := parsed.Execute(out, data)
	return out.Bytes(), err
}

var table = functions()

func measure(asked request) answer {
	values := map[string][]byte{}
	for key, value := range asked.Data {
		values[key] = []byte(value)
	}
	parsed, err := parse(asked.Template)
	if err != nil {
		return answer{Failed: true}
	}
	out, err := execute(parsed, textsOf(values))
	if err != nil {
		return answer{Failed: true}
	}
	// As long as the texts that the other side renders, which cannot be the same twice there.
	numbered := asked.Template + " 1000000"
	return answer{
		Output: string(out),
		// A cold render leaves 87 kilobytes behind, so a batch meets the garbage collector several times.
		Cold: best(5, 200, func() { _, _ = cold(numbered, values) }),
		// A cached one leaves little: short batches find a quiet moment of the machine.
		Cached: best(40, 25, func() { _, _ = execute(parsed, textsOf(values)) }),
	}
}

// best is microseconds of one run in the quickest batch: what others do on the machine only adds, but collecting the
// garbage that renders leave is part of them.
func best(batches, size int, work func()) float64 {
	shortest := time.Hour
	for round := 0; round < batches; round++ {
		started := time.Now()
		for run := 0; run < size; run++ {
			work()
		}
		shortest = min(shortest, time.Since(started))
	}
	return float64(shortest.Nanoseconds()) / 1000 / float64(size)
}

func main() {
	var asked []request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, "the list of templates on standard input is not JSON:", err)
		os.Exit(1)
	}
	answers := make([]answer, len(asked))
	for number, one := range asked {
		answers[number] = measure(one)
	}
	_ = json.NewEncoder(os.Stdout).Encode(answers)
}
