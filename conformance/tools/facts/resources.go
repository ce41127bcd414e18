package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/test/integration/etcd"
)

// Resource is one row of discovery.
type Resource struct {
	Group, Version string
	Plural         string
	Singular       string
	Kind           string
	Namespaced     bool
	Verbs          []string
	ShortNames     []string
	Categories     []string
	EtcdPrefix     string
	Subresources   []Subresource
}

// Subresource is one row below it.
type Subresource struct {
	Name                 string
	Group, Version, Kind string
	Verbs                []string
}

type groupRow struct {
	Name     string
	Versions []string
}

type resourceTable struct {
	Groups    []groupRow
	Resources []Resource
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func readResources(c *client) (*resourceTable, error) {
	stored := etcdPrefixes()
	table := &resourceTable{}
	for _, path := range []string{"/api", "/apis"} {
		var document struct {
			Items []struct {
				Metadata struct{ Name string }
				Versions []struct {
					Version   string
					Resources []struct {
						Resource, SingularResource, Scope string
						ResponseKind                      schema.GroupVersionKind
						Verbs, ShortNames, Categories     []string
						Subresources                      []struct {
							Subresource  string
							ResponseKind *schema.GroupVersionKind
							Verbs        []string
						}
					}
				}
			}
		}
		if err := c.get(path, aggregated, &document); err != nil {
			return nil, err
		}
		for _, group := range document.Items {
			row := groupRow{Name: group.Metadata.Name}
			for _, version := range group.Versions {
				row.Versions = append(row.Versions, version.Version)
				if !gaVersion.MatchString(version.Version) {
					continue
				}
				for _, r := range version.Resources {
					resource := Resource{
						Group: group.Metadata.Name, Version: version.Version,
						Plural: r.Resource, Singular: r.SingularResource, Kind: r.ResponseKind.Kind,
						Namespaced: r.Scope == "Namespaced",
						Verbs:      r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
						EtcdPrefix: stored[group.Metadata.Name+"/"+r.Resource],
					}
					for _, s := range r.Subresources {
						sub := Subresource{Name: s.Subresource, Verbs: s.Verbs}
						if s.ResponseKind != nil {
							sub.Group, sub.Version, sub.Kind = s.ResponseKind.Group, s.ResponseKind.Version, s.ResponseKind.Kind
						}
						resource.Subresources = append(resource.Subresources, sub)
					}
					table.Resources = append(table.Resources, resource)
				}
			}
			table.Groups = append(table.Groups, row)
		}
	}
	return table, nil
}

// etcdPrefixes is where upstream's own storage test expects objects of each resource: below /registry/, without the
// namespace and the name.
func etcdPrefixes() map[string]string {
	prefixes := map[string]string{}
	add := func(data map[schema.GroupVersionResource]etcd.StorageData, namespace string) {
		for gvr, stored := range data {
			path := strings.TrimPrefix(stored.ExpectedEtcdPath, "/registry/")
			path = path[:strings.LastIndex(path, "/")]
			path = strings.TrimSuffix(path, "/"+namespace)
			key := gvr.Group + "/" + gvr.Resource
			if old := prefixes[key]; old != "" && old != path {
				must(fmt.Errorf("%s is stored under %s and %s", key, old, path))
			}
			prefixes[key] = path
		}
	}
	const namespace = "namespace-to-be-removed"
	add(etcd.GetEtcdStorageDataForNamespace(namespace), namespace)
	return prefixes
}

func writeResources(path string, table *resourceTable) error {
	w := &writer{}
	w.line("{")
	w.line(`"groups": [`)
	for i, group := range table.Groups {
		line := &row{}
		line.always("name", group.Name)
		line.set("versions", group.Versions)
		w.line("  " + line.String() + comma(i, len(table.Groups)))
	}
	w.line("],")
	w.line(`"resources": [`)
	for i, r := range table.Resources {
		line := &row{}
		line.always("group", r.Group)
		line.set("version", r.Version)
		line.set("resource", r.Plural)
		line.set("singular", r.Singular)
		line.set("kind", r.Kind)
		line.always("namespaced", r.Namespaced)
		line.set("verbs", r.Verbs)
		line.set("shortNames", r.ShortNames)
		line.set("categories", r.Categories)
		line.set("etcdPrefix", r.EtcdPrefix)
		if len(r.Subresources) == 0 {
			w.line("  " + line.String() + comma(i, len(table.Resources)))
			continue
		}
		w.line("  " + strings.TrimSuffix(line.String(), "}") + `, "subresources": [`)
		sort.Slice(r.Subresources, func(i, j int) bool { return r.Subresources[i].Name < r.Subresources[j].Name })
		for j, s := range r.Subresources {
			sub := &row{}
			sub.set("name", s.Name)
			if s.Kind != "" {
				sub.always("group", s.Group)
				sub.always("version", s.Version)
				sub.set("kind", s.Kind)
			}
			sub.set("verbs", s.Verbs)
			w.line("    " + sub.String() + comma(j, len(r.Subresources)))
		}
		w.line("  ]}" + comma(i, len(table.Resources)))
	}
	w.line("]")
	w.line("}")
	return os.WriteFile(path, w.Bytes(), 0o644)
}
