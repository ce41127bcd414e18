package main

import (
	"fmt"
	"log"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Package is all types of one Go package; one file of facts.
type Package struct {
	GoPackage string
	Types     map[string]*Type
}

// Type is one Go type that occurs in a served object.
type Type struct {
	Name   string
	Model  string // the name in OpenAPI
	Kinds  []string
	Marker string // set for types that write themselves, in which case there are no fields
	Alias  string // for a named type that is not a struct and has a protobuf message of its own
	Fields []*Field
	// From OpenAPI.
	MapType     string
	Validations any
	Published   bool
	Unions      any
}

// Field is one field of a struct type.
type Field struct {
	Name                         string
	Go                           string
	Type                         string
	Inline                       bool
	OmitEmpty                    bool
	OmitZero                     bool
	Number                       int
	Wire                         string
	ProtoName                    string
	PatchStrategy, PatchMergeKey string
	// From OpenAPI.
	ListType    string
	MapKeys     []string
	MapType     string
	Default     any
	HasDefault  bool
	Enum        []any
	Format      string
	Required    bool
	Validations any
	Gate        []string
	ItemEnum    []any
	ItemFormat  string
}

var gaVersion = regexp.MustCompile(`^v[0-9]+$`)

// markers are the types with their own JSON form.
var markers = map[string]string{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":                                             "Time",
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime":                                        "MicroTime",
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":                                         "Duration",
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":                                         "FieldsV1",
	"k8s.io/apimachinery/pkg/api/resource.Quantity":                                         "Quantity",
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString":                                       "IntOrString",
	"k8s.io/apimachinery/pkg/runtime.RawExtension":                                          "RawExtension",
	"k8s.io/apimachinery/pkg/runtime.Object":                                                "RawExtension",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON":                         "JSON",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray":       "JSONSchemaPropsOrArray",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool":        "JSONSchemaPropsOrBool",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "JSONSchemaPropsOrStringArray",
}

type walker struct {
	packages map[string]*Package
}

// servedScheme is every GA kind that a default server serves.
func servedScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	must(scheme.AddToScheme(s))
	must(apiextensionsv1.AddToScheme(s))
	must(apiregistrationv1.AddToScheme(s))
	must(apidiscoveryv2.AddToScheme(s))
	must(metav1.AddMetaToScheme(s))
	return s
}

func walkTypes() map[string]*Package {
	w := &walker{packages: map[string]*Package{}}
	kinds := servedScheme().AllKnownTypes()
	var order []schema.GroupVersionKind
	for gvk := range kinds {
		order = append(order, gvk)
	}
	sort.Slice(order, func(i, j int) bool { return order[i].String() < order[j].String() })
	for _, gvk := range order {
		if !gaVersion.MatchString(gvk.Version) {
			continue
		}
		t := kinds[gvk]
		entry := w.visit(t)
		// Option and meta types are registered into every group; they have one home.
		if t.PkgPath() == "k8s.io/apimachinery/pkg/apis/meta/v1" && !(gvk.Group == "meta.k8s.io" || gvk.Group == "") {
			continue
		}
		entry.Kinds = append(entry.Kinds, strings.TrimPrefix(gvk.Group+"/"+gvk.Version+"/"+gvk.Kind, "/"))
	}
	return w.packages
}

// fileName turns a Go package into the name of its file: core.v1, meta.v1, apiextensions.v1.
func fileName(goPackage string) string {
	for _, prefix := range []string{"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apiextensions-apiserver/pkg/apis/", "k8s.io/kube-aggregator/pkg/apis/"} {
		if rest, ok := strings.CutPrefix(goPackage, prefix); ok {
			return strings.ReplaceAll(rest, "/", ".")
		}
	}
	return "machinery"
}

func typeName(t reflect.Type) string {
	return fileName(t.PkgPath()) + "." + t.Name()
}

func (w *walker) visit(t reflect.Type) *Type {
	file := fileName(t.PkgPath())
	p := w.packages[file]
	if p == nil {
		p = &Package{GoPackage: t.PkgPath(), Types: map[string]*Type{}}
		w.packages[file] = p
	}
	if entry := p.Types[t.Name()]; entry != nil {
		return entry
	}
	entry := &Type{Name: t.Name(), Model: modelName(t)}
	p.Types[t.Name()] = entry
	if marker := markers[t.PkgPath()+"."+t.Name()]; marker != "" {
		entry.Marker = marker
		if strings.HasPrefix(marker, "JSONSchemaProps") {
			w.fields(entry, t) // their members are how they are written in protobuf
		}
		return entry
	}
	if t.Kind() != reflect.Struct {
		entry.Alias = w.expression(t, true)
		return entry
	}
	if isMarshaler(t) {
		log.Printf("note: %s writes its own JSON and is not a marker", t)
	}
	w.fields(entry, t)
	return entry
}

func (w *walker) fields(entry *Type, t reflect.Type) {
	for i := range t.NumField() {
		sf := t.Field(i)
		if !sf.IsExported() {
			continue
		}
		tag, ok := sf.Tag.Lookup("json")
		if tag == "-" {
			if sf.Tag.Get("protobuf") == "" && entry.Marker == "" {
				continue
			}
		}
		if !ok && !sf.Anonymous && sf.Tag.Get("protobuf") == "" {
			log.Printf("note: %s.%s has no json tag", t, sf.Name)
		}
		parts := strings.Split(tag, ",")
		f := &Field{Name: parts[0], Go: sf.Name}
		for _, option := range parts[1:] {
			switch option {
			case "inline":
				f.Inline = true
			case "omitempty":
				f.OmitEmpty = true
			case "omitzero":
				f.OmitZero = true
			default:
				log.Printf("note: %s.%s json option %q", t, sf.Name, option)
			}
		}
		if f.Name == "" && sf.Anonymous {
			f.Inline = true
		}
		if f.Name == "" && !f.Inline {
			f.Name = sf.Name
		}
		f.Type = w.expression(sf.Type, false)
		f.PatchStrategy = sf.Tag.Get("patchStrategy")
		f.PatchMergeKey = sf.Tag.Get("patchMergeKey")
		if pb := sf.Tag.Get("protobuf"); pb != "" && pb != "-" {
			parts := strings.Split(pb, ",")
			f.Wire = wireType(sf.Type)
			n, err := strconv.Atoi(parts[1])
			must(err)
			f.Number = n
			for _, part := range parts[2:] {
				if name, ok := strings.CutPrefix(part, "name="); ok && name != f.Name {
					f.ProtoName = name
				}
			}
		}
		entry.Fields = append(entry.Fields, f)
	}
}

// wireType goes by the Go type, as upstream's generated code does: some tags say bytes of an int32.
func wireType(t reflect.Type) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return "varint"
	case reflect.Float64:
		return "fixed64"
	}
	return "bytes"
}

// expression writes a type the way a field's "type" is written, visiting what it names.
func (w *walker) expression(t reflect.Type, underlying bool) string {
	if t.PkgPath() != "" && !underlying {
		if t.Kind() == reflect.Struct || t.Kind() == reflect.Interface || hasProto(t) {
			w.visit(t)
			return typeName(t)
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + w.expression(t.Elem(), false)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + w.expression(t.Elem(), false)
	case reflect.Map:
		return "map[" + w.expression(t.Key(), false) + "]" + w.expression(t.Elem(), false)
	case reflect.String, reflect.Bool, reflect.Int32, reflect.Int64, reflect.Int, reflect.Float64, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		return t.Kind().String()
	}
	if t.Kind() == reflect.Interface && t.NumMethod() == 0 {
		return "any"
	}
	log.Fatalf("type %s (%s) is new here", t, t.Kind())
	return ""
}

// hasProto says whether a named slice or map is a message of its own in protobuf.
func hasProto(t reflect.Type) bool {
	if t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
		return false
	}
	_, ok := reflect.PointerTo(t).MethodByName("MarshalToSizedBuffer")
	return ok
}

func isMarshaler(t reflect.Type) bool {
	_, ok := reflect.PointerTo(t).MethodByName("MarshalJSON")
	return ok
}

func modelName(t reflect.Type) string {
	type namer interface{ OpenAPIModelName() string }
	if t.Kind() != reflect.Interface {
		if n, ok := reflect.New(t).Interface().(namer); ok {
			return n.OpenAPIModelName()
		}
	}
	parts := strings.SplitN(t.PkgPath(), "/", 2)
	if len(parts) < 2 {
		return t.Name()
	}
	host := strings.Split(parts[0], ".")
	for i, j := 0, len(host)-1; i < j; i, j = i+1, j-1 {
		host[i], host[j] = host[j], host[i]
	}
	return fmt.Sprintf("%s.%s.%s", strings.Join(host, "."), strings.ReplaceAll(parts[1], "/", "."), t.Name())
}
