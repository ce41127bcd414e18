package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// head is a column of a resource's Table.
type head struct {
	Name, Type, Format, Description string
	Priority                        int
}

const (
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
	// A description that this many heads share is written once, under a name.
	sharedFrom = 5
)

// writeHeads asks for the Table of every resource that can be listed. The form is described where it is read:
// apiserver/registry/src/columns/headers.rs.
func writeHeads(path string, c *client, table *resourceTable) error {
	w, resources := &writer{}, &writer{}
	uses := map[string]int{}
	heads := map[string][]head{}
	for _, r := range table.Resources {
		if !slices.Contains(r.Verbs, "list") {
			continue
		}
		columns, err := readHeads(c, r)
		if err != nil {
			return err
		}
		heads[r.path()] = columns
		for _, column := range columns {
			uses[column.Description]++
		}
	}
	named := map[string]string{}
	for _, r := range table.Resources {
		columns, listed := heads[r.path()]
		if !listed {
			continue
		}
		resources.line(r.path())
		for _, column := range columns {
			text := strings.ReplaceAll(column.Description, "\n", `\n`)
			if uses[column.Description] >= sharedFrom {
				name := strings.ReplaceAll(strings.ToLower(column.Name), " ", "-")
				if named[column.Description] == "" {
					named[column.Description] = name
					w.line("=" + name + "\t" + text)
				}
				text = "=" + named[column.Description]
			}
			resources.line(fmt.Sprintf("\t%s\t%s\t%s\t%d\t%s", column.Name, column.Type, column.Format, column.Priority, text))
		}
	}
	w.Write(resources.Bytes())
	return os.WriteFile(path, w.Bytes(), 0o644)
}

func readHeads(c *client, r Resource) ([]head, error) {
	var document struct{ ColumnDefinitions []head }
	prefix := "/apis/" + r.Group
	if r.Group == "" {
		prefix = "/api"
	}
	err := c.get(prefix+"/"+r.Version+"/"+r.Plural, asTable, &document)
	return document.ColumnDefinitions, err
}

// path is how a resource is called in headers.tsv.
func (r Resource) path() string { return r.Group + "/" + r.Version + "/" + r.Plural }
