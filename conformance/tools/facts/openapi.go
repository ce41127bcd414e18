package main

import (
	"log"
	"sort"
	"strings"
)

type object = map[string]any

// addOpenAPI joins what the server publishes to the types and fields found by reflection, by the model's name; words and hashes
// go elsewhere.
func addOpenAPI(packages map[string]*Package, c *client, words words, schemas schemas) error {
	models := map[string]*Type{}
	for _, p := range packages {
		for _, t := range p.Types {
			models[t.Model] = t
		}
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := c.get("/openapi/v3", "application/json", &index); err != nil {
		return err
	}
	var paths []string
	for path := range index.Paths {
		// Discovery of a group stands at an address without a version.
		if parts := strings.Split(path, "/"); len(parts) < 3 || gaVersion.MatchString(parts[2]) {
			paths = append(paths, path)
		}
	}
	sort.Strings(paths)
	seen := map[string]bool{}
	for _, path := range paths {
		var document struct {
			Components struct{ Schemas map[string]object }
		}
		if err := c.get(index.Paths[path].ServerRelativeURL, "application/json", &document); err != nil {
			return err
		}
		for model, schema := range document.Components.Schemas {
			if seen[model] {
				continue
			}
			seen[model] = true
			words.add(model, schema)
			schemas.add(model, schema)
			t := models[model]
			if t == nil {
				log.Printf("note: %s in %s has no Go type", model, path)
				continue
			}
			addSchema(t, schema, packages)
		}
	}
	return nil
}

func addSchema(t *Type, schema object, packages map[string]*Package) {
	t.Published = true
	t.MapType, _ = schema["x-kubernetes-map-type"].(string)
	t.Validations = schema["x-kubernetes-validations"]
	t.Unions = schema["x-kubernetes-unions"]
	required := map[string]bool{}
	for _, name := range list(schema["required"]) {
		required[name.(string)] = true
	}
	properties, _ := schema["properties"].(object)
	known := map[string]bool{}
	for _, f := range flatten(t, packages) {
		known[f.Name] = true
		property, ok := properties[f.Name].(object)
		if !ok {
			if f.Name != "" && len(properties) > 0 {
				log.Printf("note: %s.%s is not published", t.Model, f.Name)
			}
			continue
		}
		f.Required = required[f.Name]
		addProperty(f, property)
	}
	for name := range properties {
		if !known[name] {
			log.Printf("note: %s.%s is published and not in Go", t.Model, name)
		}
	}
}

// flatten lists the fields of a type as JSON shows them: those of inlined structs in their place.
func flatten(t *Type, packages map[string]*Package) []*Field {
	var all []*Field
	for _, f := range t.Fields {
		if !f.Inline {
			all = append(all, f)
			continue
		}
		file, name := splitName(strings.TrimPrefix(f.Type, "*"))
		if p := packages[file]; p != nil && p.Types[name] != nil {
			all = append(all, flatten(p.Types[name], packages)...)
		}
	}
	return all
}

func splitName(reference string) (file, name string) {
	i := strings.LastIndex(reference, ".")
	if i < 0 {
		return "", reference
	}
	return reference[:i], reference[i+1:]
}

func addProperty(f *Field, property object) {
	f.ListType, _ = property["x-kubernetes-list-type"].(string)
	for _, key := range list(property["x-kubernetes-list-map-keys"]) {
		f.MapKeys = append(f.MapKeys, key.(string))
	}
	f.MapType, _ = property["x-kubernetes-map-type"].(string)
	f.Validations = property["x-kubernetes-validations"]
	f.Default, f.HasDefault = property["default"]
	f.Enum = list(property["enum"])
	f.Format, _ = property["format"].(string)
	item := property
	for {
		next, ok := item["items"].(object)
		if !ok {
			next, ok = item["additionalProperties"].(object)
		}
		if !ok {
			break
		}
		item = next
		if enum := list(item["enum"]); enum != nil {
			f.ItemEnum = enum
		}
		if format, ok := item["format"].(string); ok {
			f.ItemFormat = format
		}
	}
	strategy, _ := property["x-kubernetes-patch-strategy"].(string)
	key, _ := property["x-kubernetes-patch-merge-key"].(string)
	if strategy != f.PatchStrategy || key != f.PatchMergeKey {
		log.Printf("note: %s: patch strategy %q %q, in Go %q %q", f.Name, strategy, key, f.PatchStrategy, f.PatchMergeKey)
	}
}

func list(value any) []any {
	items, _ := value.([]any)
	return items
}
