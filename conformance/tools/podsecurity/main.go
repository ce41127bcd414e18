// Command podsecurity asks upstream's checks of the Pod Security Standards what they say of pods, at every version.
//
// It reads a table of pods (machinery/pod-security/testdata/upstream.jsonl), adds the fixtures of upstream's module that
// it lacks, and writes the table anew:
//
//	go run ./podsecurity TABLE "$(go list -m -f '{{.Dir}}' k8s.io/pod-security-admission)/test/testdata"
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// future is a minor version that no check is made for yet.
const future = 40

// change says which violations a pod has from a minor version on, by their places in the row.
type change [2]any

type row struct {
	Baseline   []change       `json:"baseline"`
	Fixtures   []string       `json:"fixtures,omitempty"`
	Pod        map[string]any `json:"pod"`
	Restricted []change       `json:"restricted"`
	Violations []string       `json:"violations"`
}

type table struct {
	rows []*row
	// byPod finds rows by their pods.
	byPod map[string]*row
	// minors of fixtures, by row and name.
	minors map[*row]map[string][]int
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func encoded(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(value))
	return out.Bytes()
}

func (t *table) add(pod map[string]any) *row {
	key := string(encoded(pod))
	if t.byPod[key] == nil {
		t.byPod[key] = &row{Pod: pod}
		t.rows = append(t.rows, t.byPod[key])
	}
	return t.byPod[key]
}

func (t *table) readTable(path string) {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var own row
		must(json.Unmarshal(lines.Bytes(), &own))
		t.add(own.Pod)
	}
	must(lines.Err())
}

// readFixtures reads files LEVEL/v1.MINOR/{pass,fail}/CHECK.yaml.
func (t *table) readFixtures(folder string) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "v1.*", "*", "*.yaml"))
	must(err)
	for _, file := range files {
		relative, err := filepath.Rel(folder, file)
		must(err)
		parts := strings.Split(relative, string(filepath.Separator))
		var minor int
		_, err = fmt.Sscanf(parts[1], "v1.%d", &minor)
		must(err)
		text, err := os.ReadFile(file)
		must(err)
		var pod corev1.Pod
		must(yaml.UnmarshalStrict(text, &pod))
		own := t.add(bare(pod))
		if t.minors[own] == nil {
			t.minors[own] = map[string][]int{}
		}
		name := parts[0] + "/" + parts[2] + "/" + strings.TrimSuffix(parts[3], ".yaml")
		t.minors[own][name] = append(t.minors[own][name], minor)
	}
}

// bare returns what checks look at, with the default source of volumes.
func bare(pod corev1.Pod) map[string]any {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].VolumeSource == (corev1.VolumeSource{}) {
			pod.Spec.Volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
	}
	var own map[string]any
	must(json.Unmarshal(encoded(pod.Spec), &own))
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		containers, _ := own[list].([]any)
		for _, container := range containers {
			members := container.(map[string]any)
			delete(members, "image")
			delete(members, "resources")
		}
	}
	if own["containers"] == nil {
		own["containers"] = []any{}
	}
	if len(pod.Annotations) == 0 {
		return map[string]any{"spec": own}
	}
	var annotations map[string]any
	must(json.Unmarshal(encoded(pod.Annotations), &annotations))
	return map[string]any{"metadata": map[string]any{"annotations": annotations}, "spec": own}
}

func (r *row) place(text string) int {
	if at := slices.Index(r.Violations, text); at >= 0 {
		return at
	}
	r.Violations = append(r.Violations, text)
	return len(r.Violations) - 1
}

func (r *row) evaluate(evaluator policy.Evaluator, level api.Level) []change {
	var pod corev1.Pod
	must(json.Unmarshal(encoded(r.Pod), &pod))
	var changes []change
	var last []int
	for minor := 0; minor <= future; minor++ {
		wanted := api.LevelVersion{Level: level, Version: api.MajorMinorVersion(1, minor)}
		result := policy.AggregateCheckResults(evaluator.EvaluatePod(wanted, &pod.ObjectMeta, &pod.Spec))
		places := []int{}
		for i, reason := range result.ForbiddenReasons {
			places = append(places, r.place(fmt.Sprintf("%s (%s)", reason, result.ForbiddenDetails[i])))
		}
		if changes == nil || !slices.Equal(last, places) {
			changes = append(changes, change{minor, places})
			last = places
		}
	}
	return changes
}

// ranges tells fixtures with the minor versions that have them, which follow each other.
func ranges(minors map[string][]int) []string {
	var told []string
	for name, own := range minors {
		first, last := slices.Min(own), slices.Max(own)
		if last-first+1 != len(own) {
			log.Fatalf("%s is not at every version from %d to %d", name, first, last)
		}
		told = append(told, fmt.Sprintf("%s %d-%d", name, first, last))
	}
	slices.Sort(told)
	return told
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: podsecurity TABLE TESTDATA")
	}
	all := &table{byPod: map[string]*row{}, minors: map[*row]map[string][]int{}}
	all.readTable(os.Args[1])
	all.readFixtures(os.Args[2])
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(err)
	for _, own := range all.rows {
		own.Violations = []string{}
		own.Baseline = own.evaluate(evaluator, api.LevelBaseline)
		own.Restricted = own.evaluate(evaluator, api.LevelRestricted)
		own.Fixtures = ranges(all.minors[own])
		_, err := os.Stdout.Write(encoded(own))
		must(err)
	}
}
