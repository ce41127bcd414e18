package main

import (
	"os"
	"reflect"
	"strings"
)

// words is what upstream says about types and fields, by the name of the model.
type words map[string]*modelWords

type modelWords struct {
	Description string
	Fields      map[string]string
}

// add takes the words of a published schema.
func (w words) add(model string, schema object) {
	own := &modelWords{Fields: map[string]string{}}
	own.Description, _ = schema["description"].(string)
	properties, _ := schema["properties"].(object)
	for name, property := range properties {
		if text, _ := property.(object)["description"].(string); text != "" {
			own.Fields[name] = text
		}
	}
	w[model] = own
}

// addOptions takes the words of types whose fields are query parameters: these are published with the operations that
// take them and not as schemas.
func (w words) addOptions() {
	type documented interface{ SwaggerDoc() map[string]string }
	for gvk, t := range servedScheme().AllKnownTypes() {
		model := modelName(t)
		if gvk.Version != "v1" || !strings.HasSuffix(gvk.Kind, "Options") || w[model] != nil {
			continue
		}
		own := &modelWords{Fields: map[string]string{}}
		if object, ok := reflect.New(t).Interface().(documented); ok {
			own.Fields = object.SwaggerDoc()
		}
		delete(own.Fields, "")
		w[model] = own
	}
}

// write writes a line for each model: its name, its description and those of its fields.
func (w words) write(path string) error {
	out := &writer{}
	for _, model := range sortedKeys(w) {
		line := &row{}
		line.always("model", model)
		line.set("description", w[model].Description)
		line.set("fields", w[model].Fields)
		out.line(line.String())
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
