// Command quantities prints what Go's quantities are as whole numbers and as floats: a line for each quantity, sum and difference.
package main

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/api/resource"
)

var texts = []string{"0", "1", "-1", "+1", "0m", "0.0", "1.0", "00", "01", "1000m", "1500m", "500m", "1k", "1.5k", "1.5Ki", "0.5Ki", "1Ki", "1Mi", "100Gi", "7Ei", "8Ei", "1Ei", "9E", "10E", "20e-1", "2e-0", "2e1", "2E2", "1e18", "1e19", "1e-9", "1e-10", "1000000000n", "3n", "7u", "1.", ".5", "1.G", "-0", "999999999999999999", "9223372036854775807", "9223372036854775808", "0.000000001", "0.0000000001", "123456789012345Ki", "12345678901234Ki", "1e+3", "-1.5k", "1000k", "0e5", "0Ki"}

func show(left, operator, right string, own resource.Quantity) {
	whole := "-"
	if value, ok := own.AsInt64(); ok {
		whole = fmt.Sprint(value)
	}
	fmt.Printf("%s\t%s\t%s\t%s\t%d\n", left, operator, right, whole, math.Float64bits(own.AsApproximateFloat64()))
}

func main() {
	for _, text := range texts {
		show(text, "", "", resource.MustParse(text))
	}
	for at, left := range texts {
		for _, distance := range []int{1, 7, 12} {
			right := texts[(at+distance)%len(texts)]
			sum, difference := resource.MustParse(left), resource.MustParse(left)
			sum.Add(resource.MustParse(right))
			difference.Sub(resource.MustParse(right))
			show(left, "+", right, sum)
			show(left, "-", right, difference)
		}
	}
}
