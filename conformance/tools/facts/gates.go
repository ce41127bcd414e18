package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features" // registers the gates
)

var gateMarker = regexp.MustCompile(`(?m)^\s*\+featureGate=(\S+)\s*$`)

// addFeatureGates reads the gates that stand as markers above fields in upstream's sources. The folder of a package is
// asked of the go command, run in this module.
func addFeatureGates(packages map[string]*Package) error {
	for _, p := range packages {
		folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", p.GoPackage).Output()
		if err != nil {
			return fmt.Errorf("finding the source of %s: %w", p.GoPackage, err)
		}
		sources, err := build.ImportDir(strings.TrimSpace(string(folder)), 0)
		if err != nil {
			return err
		}
		for _, name := range sources.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), sources.Dir+"/"+name, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, declaration := range file.Decls {
				if d, ok := declaration.(*ast.GenDecl); ok {
					addGatesOf(p, d)
				}
			}
		}
	}
	return nil
}

func addGatesOf(p *Package, declaration *ast.GenDecl) {
	for _, spec := range declaration.Specs {
		named, ok := spec.(*ast.TypeSpec)
		if !ok || p.Types[named.Name.Name] == nil {
			continue
		}
		structure, ok := named.Type.(*ast.StructType)
		if !ok {
			continue
		}
		gates := map[string][]string{}
		for _, field := range structure.Fields.List {
			for _, match := range gateMarker.FindAllStringSubmatch(comment(field.Doc), -1) {
				for _, name := range field.Names {
					gates[name.Name] = append(gates[name.Name], match[1])
				}
			}
		}
		for _, f := range p.Types[named.Name.Name].Fields {
			f.Gate = gates[f.Go]
		}
	}
}

// comment keeps marker lines, which Text() would drop.
func comment(group *ast.CommentGroup) string {
	if group == nil {
		return ""
	}
	var lines []string
	for _, line := range group.List {
		lines = append(lines, strings.TrimPrefix(line.Text, "//"))
	}
	return strings.Join(lines, "\n")
}

// writeGates writes every gate of the server with its default in this release.
func writeGates(path string) error {
	gates := utilfeature.DefaultMutableFeatureGate.GetAll()
	var names []string
	for name := range gates {
		if name != "AllAlpha" && name != "AllBeta" {
			names = append(names, string(name))
		}
	}
	sort.Strings(names)
	var lines []string
	for name, gate := range gates {
		stage := string(gate.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		line, err := json.Marshal([]any{gate.Default, stage, gate.LockToDefault})
		if err != nil {
			return err
		}
		if name != "AllAlpha" && name != "AllBeta" {
			lines = append(lines, fmt.Sprintf("  %q: %s", name, line))
		}
	}
	sort.Strings(lines)
	return os.WriteFile(path, []byte("{\n"+strings.Join(lines, ",\n")+"\n}\n"), 0o644)
}
