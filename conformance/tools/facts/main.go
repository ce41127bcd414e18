// Command facts writes down what upstream's own code and server say about the built-in kinds.
//
// Struct tags are read by reflection from the types that client-go registers, markers from their sources, and the rest
// from a running kube-apiserver: OpenAPI v3, aggregated discovery and Tables. The output is described in
// machinery/api/facts/README.md.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"
)

func main() {
	server := flag.String("server", "", "URL of a running kube-apiserver with default flags")
	token := flag.String("token", "", "bearer token of a cluster admin")
	out := flag.String("out", "", "folder to write into")
	flag.Parse()
	log.SetFlags(0)
	if *server == "" || *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	client := &client{server: *server, token: *token}

	packages := walkTypes()
	words, schemas := words{}, schemas{}
	must(addOpenAPI(packages, client, words, schemas))
	words.addOptions()
	must(addFeatureGates(packages))
	resources, err := readResources(client)
	must(err)

	must(os.MkdirAll(filepath.Join(*out, "types"), 0o755))
	for name, p := range packages {
		must(writePackage(filepath.Join(*out, "types", name+".json"), p))
	}
	must(writeResources(filepath.Join(*out, "resources.json"), resources))
	must(writeDefaults(filepath.Join(*out, "defaults.json")))
	must(writeGates(filepath.Join(*out, "feature_gates.json")))
	must(schemas.write(filepath.Join(*out, "schemas.tsv")))
	must(words.write(filepath.Join(*out, "descriptions.jsonl")))
	must(writeHeads(filepath.Join(*out, "headers.tsv"), client, resources))
	// Last, since it adds custom kinds.
	must(writeOperations(filepath.Join(*out, "operations.tsv"), client))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
