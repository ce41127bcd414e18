package main

import (
	"bytes"
	"encoding/json"
	"os"
)

// schemas is the hash of every published schema, by the name of the model.
type schemas map[string]string

// add takes a schema as it stands in the first document that has it, without what depends on the document.
func (s schemas) add(model string, schema object) {
	own := object{}
	for name, member := range schema {
		if name != "x-kubernetes-group-version-kind" && name != "x-kubernetes-unions" {
			own[name] = member
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(own))
	s[model] = shortHash(string(bytes.TrimSpace(text.Bytes())))
}

func (s schemas) write(path string) error {
	w := &writer{}
	for _, model := range sortedKeys(s) {
		w.line(model + "\t" + s[model])
	}
	return os.WriteFile(path, w.Bytes(), 0o644)
}
