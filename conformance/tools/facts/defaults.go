package main

import (
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensionsinstall "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationinstall "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/controlplane" // registers kinds and their defaults
)

// What upstream's defaulting functions do is seen by running them: each kind once as an empty object, once with every
// struct present and one element in every list, all scalars absent. Whatever is different afterwards was defaulted.

func writeDefaults(path string) error {
	apiextensionsinstall.Install(legacyscheme.Scheme)
	apiregistrationinstall.Install(legacyscheme.Scheme)
	s := legacyscheme.Scheme
	var kinds []schema.GroupVersionKind
	for gvk, t := range s.AllKnownTypes() {
		if gaVersion.MatchString(gvk.Version) && t.PkgPath() != "k8s.io/apimachinery/pkg/apis/meta/v1" && !strings.HasSuffix(gvk.Kind, "List") {
			kinds = append(kinds, gvk)
		}
	}
	sort.Slice(kinds, func(i, j int) bool { return kinds[i].String() < kinds[j].String() })

	w := &writer{}
	w.line("{")
	section(w, "empty", s, kinds, func(reflect.Value) {}, ",")
	section(w, "filled", s, kinds, func(v reflect.Value) { fill(v, map[reflect.Type]bool{}) }, "")
	w.line("}")
	return os.WriteFile(path, w.Bytes(), 0o644)
}

func section(w *writer, name string, s *runtime.Scheme, kinds []schema.GroupVersionKind, prepare func(reflect.Value), end string) {
	w.line(fmt.Sprintf("%q: {", name))
	var blocks [][]string
	for _, gvk := range kinds {
		if lines := observe(s, gvk, prepare); len(lines) > 0 {
			head := fmt.Sprintf("  %q: {", strings.TrimPrefix(gvk.Group+"/"+gvk.Version+"/"+gvk.Kind, "/"))
			blocks = append(blocks, append([]string{head}, lines...))
		}
	}
	for i, block := range blocks {
		for j, line := range block {
			if j > 0 {
				line += comma(j, len(block))
			}
			w.line(line)
		}
		w.line("  }" + comma(i, len(blocks)))
	}
	w.line("}" + end)
}

func observe(s *runtime.Scheme, gvk schema.GroupVersionKind, prepare func(reflect.Value)) (lines []string) {
	defer func() {
		if problem := recover(); problem != nil {
			log.Printf("note: defaulting %s: %v", gvk, problem)
		}
	}()
	made, err := s.New(gvk)
	must(err)
	prepare(reflect.ValueOf(made).Elem())
	before := made.DeepCopyObject()
	s.Default(made)
	compare("", reflect.ValueOf(before).Elem(), reflect.ValueOf(made).Elem(), &lines)
	sort.Strings(lines)
	return lines
}

// compare writes a line for each place that defaulting changed. A field is named by its JSON name, an item by [].
func compare(path string, before, after reflect.Value, lines *[]string) {
	if !after.CanInterface() || reflect.DeepEqual(before.Interface(), after.Interface()) {
		return
	}
	emit := func() {
		line := &row{}
		if after.Type() == reflect.TypeFor[*metav1.Time]() {
			line.always(strings.TrimPrefix(path, "."), "NOW")
		} else {
			line.always(strings.TrimPrefix(path, "."), after.Interface())
		}
		text := line.String()
		*lines = append(*lines, "    "+text[1:len(text)-1])
	}
	switch after.Kind() {
	case reflect.Pointer:
		if before.IsNil() || after.IsNil() || after.Elem().Kind() != reflect.Struct {
			emit()
			return
		}
		compare(path, before.Elem(), after.Elem(), lines)
	case reflect.Struct:
		if markers[after.Type().PkgPath()+"."+after.Type().Name()] != "" {
			emit()
			return
		}
		for i := range after.NumField() {
			tag := strings.Split(after.Type().Field(i).Tag.Get("json"), ",")
			name := path
			if tag[0] != "" {
				name += "." + tag[0]
			}
			compare(name, before.Field(i), after.Field(i), lines)
		}
	case reflect.Slice:
		if before.Len() != after.Len() {
			emit()
			return
		}
		for i := range after.Len() {
			compare(path+"[]", before.Index(i), after.Index(i), lines)
		}
	default:
		emit()
	}
}

// fill makes every struct that can be there be there, and one element in every list of structs. A type inside itself
// stays empty.
func fill(v reflect.Value, above map[reflect.Type]bool) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && !above[v.Type().Elem()] && markers[v.Type().Elem().PkgPath()+"."+v.Type().Elem().Name()] == "" {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), above)
		}
	case reflect.Struct:
		t := v.Type()
		if above[t] || markers[t.PkgPath()+"."+t.Name()] != "" || t.Name() == "ObjectMeta" {
			return
		}
		above[t] = true
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), above)
			}
		}
		delete(above, t)
	case reflect.Slice:
		element := v.Type().Elem()
		if element.Kind() == reflect.Struct && !above[element] {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0), above)
		}
	}
}
