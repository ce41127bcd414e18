package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sort"
	"strings"
	"time"
)

// parameter is a parameter of OpenAPI v2, its members in the order in which upstream hashes them.
type parameter struct {
	UniqueItems bool           `json:"uniqueItems,omitempty"`
	Type        string         `json:"type,omitempty"`
	Description string         `json:"description,omitempty"`
	Name        string         `json:"name,omitempty"`
	In          string         `json:"in,omitempty"`
	Required    bool           `json:"required,omitempty"`
	Schema      map[string]any `json:"schema,omitempty"`
	Ref         string         `json:"$ref,omitempty"`
}

type operation struct {
	OperationID, Description string
	Tags                     []string
	Consumes, Produces       []string
	Parameters               []parameter
	Responses                map[string]struct{ Schema map[string]any }
	Action                   string                                `json:"x-kubernetes-action"`
	Kind                     struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

type pathItem struct {
	Get, Put, Post, Delete, Options, Head, Patch *operation
	Parameters                                   []parameter
}

type document struct {
	Paths      map[string]pathItem
	Parameters map[string]parameter
}

// writeOperations writes what the published document says about every operation of the GA group versions and of what
// stands beside them. The form is described where it is read: machinery/api/src/openapi/tests/upstream.rs.
func writeOperations(path string, c *client) error {
	d, err := documentWithCustomKinds(c)
	if err != nil {
		return err
	}
	shapes := map[string]int{}
	w, rows := &writer{}, &writer{}
	for _, path := range sortedKeys(d.Paths) {
		parts := strings.Split(path, "/")
		if len(parts) > 4 && parts[1] == "apis" && !gaVersion.MatchString(parts[3]) {
			continue
		}
		rows.line(path)
		item := d.Paths[path]
		for _, own := range []struct {
			method string
			*operation
		}{
			{"get", item.Get}, {"put", item.Put}, {"post", item.Post}, {"delete", item.Delete},
			{"options", item.Options}, {"head", item.Head}, {"patch", item.Patch},
		} {
			if own.operation == nil {
				continue
			}
			shape, facts := d.split(own.operation, item.Parameters)
			number, known := shapes[shape]
			if !known {
				number = len(shapes)
				shapes[shape] = number
				w.line(fmt.Sprintf("=%d\t%s", number, shape))
			}
			rows.line(fmt.Sprintf("\t%s\t%d\t%s", own.method, number, facts))
		}
	}
	w.Write(rows.Bytes())
	return os.WriteFile(path, w.Bytes(), 0o644)
}

// A namespaced kind with all subresources, and one of a whole cluster that has none and says nothing about its members.
var definitions = []string{`{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "crontabs.stable.example.com"},
	"spec": {"group": "stable.example.com", "scope": "Namespaced",
		"names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
		"versions": [{"name": "v1", "served": true, "storage": true,
			"subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
			"schema": {"openAPIV3Schema": {"type": "object", "properties": {
				"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
				"status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]}}`, `{
	"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "anvils.stable.example.com"},
	"spec": {"group": "stable.example.com", "scope": "Cluster",
		"names": {"plural": "anvils", "singular": "anvil", "kind": "Anvil"},
		"versions": [{"name": "v1", "served": true, "storage": true,
			"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`,
}

// Attempts until the custom kinds are published.
const publishedAttempts = 60

func documentWithCustomKinds(c *client) (*document, error) {
	for _, definition := range definitions {
		if err := c.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition); err != nil {
			return nil, err
		}
	}
	for range publishedAttempts {
		d := &document{}
		if err := c.get("/openapi/v2", "application/json", d); err != nil {
			return nil, err
		}
		_, anvils := d.Paths["/apis/stable.example.com/v1/anvils"]
		_, crontabs := d.Paths["/apis/stable.example.com/v1/crontabs"]
		if anvils && crontabs {
			return d, nil
		}
		time.Sleep(time.Second)
	}
	return nil, errors.New("the custom kinds are not published")
}

// split separates what many operations have in common from what only this one has.
func (d *document) split(o *operation, shared []parameter) (shape, facts string) {
	var names []string
	named, body := "", ""
	for _, p := range append(append([]parameter{}, o.Parameters...), shared...) {
		if name, ok := strings.CutPrefix(p.Ref, "#/parameters/"); ok {
			p = d.Parameters[name]
		}
		switch {
		case p.In == "body":
			body = model(p.Schema)
			names = append(names, fmt.Sprintf("body=%t", p.Required))
		case p.Name == "name":
			named = strings.TrimPrefix(p.Description, "name of the ")
			names = append(names, "name")
		default:
			text, err := json.Marshal(p)
			must(err)
			names = append(names, p.Name+"-"+shortHash(string(text)))
		}
	}
	sort.Strings(names)
	codes, answer := sortedKeys(o.Responses), ""
	for _, code := range codes {
		if schema := o.Responses[code].Schema; schema != nil {
			answer = model(schema)
		}
	}
	join := func(all []string) string { return strings.Join(all, " ") }
	shape = strings.Join([]string{join(o.Consumes), join(o.Produces), join(names), join(codes)}, "\t")
	kind := strings.Join([]string{o.Kind.Group, o.Kind.Version, o.Kind.Kind}, "/")
	facts = strings.Join([]string{
		o.OperationID, join(o.Tags), o.Action, kind, named, body, answer, shortHash(o.Description),
	}, "\t")
	return shape, facts
}

func model(schema map[string]any) string {
	if ref, ok := schema["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#/definitions/")
	}
	text, _ := schema["type"].(string)
	return text
}

// shortHash is the hash in the names of upstream's shared parameters.
func shortHash(text string) string {
	hash := fnv.New64()
	hash.Write([]byte(text))
	return base64.URLEncoding.EncodeToString(hash.Sum(nil)[:6])
}
