package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"sort"
	"strings"
)

// writer collects lines.
type writer struct{ bytes.Buffer }

func (w *writer) line(text string) {
	w.WriteString(text)
	w.WriteByte('\n')
}

// row is a JSON object on one line, its members in the order they were set; empty ones are left out.
type row struct{ members []string }

func (r *row) set(name string, value any) {
	if v := reflect.ValueOf(value); !v.IsValid() || v.IsZero() || (v.Kind() == reflect.Slice && v.Len() == 0) {
		return
	}
	r.always(name, value)
}

func (r *row) always(name string, value any) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(value))
	r.members = append(r.members, `"`+name+`": `+strings.TrimSpace(text.String()))
}

func (r *row) String() string { return "{" + strings.Join(r.members, ", ") + "}" }

func comma(i, n int) string {
	if i+1 < n {
		return ","
	}
	return ""
}

func writePackage(path string, p *Package) error {
	w := &writer{}
	head := &row{}
	head.set("goPackage", p.GoPackage)
	w.line(strings.TrimSuffix(head.String(), "}") + `, "types": {`)
	var names []string
	for name := range p.Types {
		names = append(names, name)
	}
	sort.Strings(names)
	for i, name := range names {
		writeType(w, p.Types[name], comma(i, len(names)))
	}
	w.line("}}")
	return os.WriteFile(path, w.Bytes(), 0o644)
}

func writeType(w *writer, t *Type, end string) {
	sort.Strings(t.Kinds)
	line := &row{}
	line.set("model", t.Model)
	line.set("kinds", t.Kinds)
	line.set("marker", t.Marker)
	line.set("is", t.Alias)
	line.set("mapType", t.MapType)
	line.set("published", t.Published)
	line.set("unions", t.Unions)
	line.set("validations", t.Validations)
	text := `"` + t.Name + `": ` + line.String()
	if len(t.Fields) == 0 {
		w.line(text + end)
		return
	}
	w.line(strings.TrimSuffix(text, "}") + `, "fields": [`)
	for i, f := range t.Fields {
		w.line("  " + f.row().String() + comma(i, len(t.Fields)))
	}
	w.line("]}" + end)
}

func (f *Field) row() *row {
	line := &row{}
	line.set("name", f.Name)
	if f.Name == "" || !strings.EqualFold(f.Name, f.Go) {
		line.set("go", f.Go)
	}
	line.set("type", f.Type)
	line.set("inline", f.Inline)
	line.set("omitEmpty", f.OmitEmpty)
	line.set("omitZero", f.OmitZero)
	line.set("required", f.Required)
	line.set("number", f.Number)
	line.set("wire", f.Wire)
	line.set("protoName", f.ProtoName)
	line.set("patchStrategy", f.PatchStrategy)
	line.set("patchMergeKey", f.PatchMergeKey)
	line.set("listType", f.ListType)
	line.set("mapKeys", f.MapKeys)
	line.set("mapType", f.MapType)
	if f.HasDefault {
		line.always("default", f.Default)
	}
	line.set("enum", f.Enum)
	line.set("format", f.Format)
	line.set("itemEnum", f.ItemEnum)
	line.set("itemFormat", f.ItemFormat)
	line.set("validations", f.Validations)
	line.set("featureGates", f.Gate)
	return line
}

func sortedKeys[V any](all map[string]V) []string {
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
