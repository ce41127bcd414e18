// Command formats prints Go's answers for the string formats of custom resources: a line for each format, with the texts that are of it
// and those that are not. The texts are samples of all formats, and samples with one character changed.
package main

import (
	"encoding/json"
	"math/rand"
	"os"

	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

var samples = map[string][]string{
	"bsonobjectid": {"507f1f77bcf86cd799439011", "507F1F77BCF86CD799439011", "507f1f77bcf86cd79943901"},
	"uri": {"http://a.b/c?d#e", "/a", "/", "*", "a:b", "mailto:x@y", "a", "//a/b", "http://[", "http://[::1]:80/", "http://[::1", "http://[fe80::1%25en0]:8/", "http://[fe80::1%25]/",
		"http://[1.2.3.4]/", "http://a:b/", "http://a:1:2/", "mysql://a:1:2/", "mysql://a:1,b:2/", "http://a b/", "/a b", "http://u:p@h/", "http://u p@h/", "http://%41/", "http://%C3%A9/", "/%4", "/%zz",
		"1a:b", ":b", "http://é/", "http://a\u007f/", "http://a^/", "http://a\"/", "http:", "http:?", "?a", "http://?a", "a+b:c", "http://[::ffff:1.2.3.4]/", "http://a[b]/", "http://[::1%25%41]/", "http://[::1%25%20]/", "http://u:%zz@h/", "/a?%zz"},
	"email": {"a@b.c", "A <a@b.c>", "<a@b.c>", "\"a b\"@c", "\"\"@c", "a@b", "a.b@c", ".a@b", "a.@b", "a..b@c", "a@b.", "a@[1.2.3.4]", "a@[::1]", "a@[x]", "a@b (c)", "(c) a@b", "a@b (c", "a@b (c(d)e)",
		"g: a@b;", "g: a@b, c@d;", "g:;", "a, b <a@b>", "é@b", "a@é", "\"a\\\"b\"@c", "\"a\u0001\"@c", "a b <a@b>", "a \"b\" <a@b>", "a.b. <a@b>", "=?utf-8?q?a?= <a@b>", "=?x-y?q?a?= <a@b>", "=?utf-8?b?YQ==?= b <a@b>",
		"a (c) b <a@b>", "a <a@b", "a <a@b> x", " a@b ", "a@ b", "a @b", "a@b,c@d", "@b", "a@", "a", "a@b (=?x-y?q?a?=)", "a@b (\\))", "\"x\" <a@b>", "a; <b@c>", "a@[1.2.3.4", "=?iso-8859-1?q?=E9?= <a@b>"},
	"hostname": {"a", "a.b", "a-b.cd", "a-", "-a", "+1h", "aGVsbG8=", "1.2.3.4", "2020-01-01", "a.b.c", "a.bc", "a.bc.", "é", "é.éé", "a_b", "a+b.cd", "😀.com", "a😀", "a--b", "a-b-c", "a-b-c.de",
		"1234567890123456789012345678901234567890123456789012345678901234", "123456789012345678901234567890123456789012345678901234567890123", "123456789012345678901234567890123456789012345678901234567890123.com", "a-.com", "a.c1", "a.b-c", "0", "A.COM", "a b"},
	"ipv4": {"1.2.3.4", "1.2.3.04", "01.2.3.4", "001.02.003.0004", "::ffff:1.2.3.4", "::1.2.3.4", "256.1.1.1", "1.2.3", "1.2.3.4.5", "1.2.3.4 ", "1:2:3:4:5:6:1.2.3.4", "1.2.3.0000000004", "1..2.3", "::ffff:1.2.3.04", "1:2:3:4:5:1.2.3.4"},
	"ipv6": {"::", "::1", "1::", "fe80::1%en0", "::ffff:1.2.3.4", "::ffff:1.2.3.04", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "12345::", "A::B", "1::2::3", ":::", "1:2:3:4:5:6:7::"},
	"cidr": {"1.2.3.4/24", "1.2.3.04/24", "1.2.3.4/024", "1.2.3.4/33", "1.2.3.4", "::/0", "::1/128", "::1/129", "1.2.3.4/+4", "1.2.3.4/-1", "1.2.3.4/", "::ffff:1.2.3.4/100", "::ffff:1.2.3.4/24", "fe80::1%a/64", "1.2.3.4/24/3", "1.2.3.4/00", "1.2.3.4/0000032"},
	"mac": {"01:23:45:67:89:ab", "01-23-45-67-89-ab", "01:23-45:67:89:ab", "0123.4567.89ab", "0123.4567.89ab.cdef", "0123456789ab", "0123456789abcdef", "0123456789a", "01:23:45:67:89:ab:cd:ef", "01:23:45:67:89:ab:cd", "0123.4567.89a",
		"00:00:00:00:fe:80:00:00:00:00:00:00:02:00:5e:10:00:00:00:01", "0000.0000.fe80.0000.0000.0000.0200.5e10.0000.0001", "00000000fe80000000000000020005e1000000001", "00000000fe8000000000000002005e1000000001", "01:23:45:67:89:AB", "01 23 45 67 89 ab"},
	"uuid":           {"123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000", "123e4567-e89b12d3-a456426614174000", "123e4567--e89b-12d3-a456-426614174000", "-23e4567e89b12d3a456426614174000a"},
	"uuid3":          {"123e4567-e89b-32d3-a456-426614174000", "123e4567-e89b-32d3-0456-426614174000"},
	"uuid4":          {"123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000", "123e4567e89b42d38456426614174000"},
	"uuid5":          {"123e4567-e89b-52d3-a456-426614174000", "123e4567-e89b-52d3-7456-426614174000", "123e4567-e89b-52d3-B456-426614174000"},
	"isbn":           {"0321751043", "978-0321751041", "9780321751041", "032175104X", "0-321-75104-3", "080442957X"},
	"isbn10":         {"080442957x", "0 321 75104 3", "0\t321\n751043", "0321751044", "03217510433"},
	"isbn13":         {"978 0 321 75104 1", "978-0321751042", "9780000000002", "9780000000000"},
	"creditcard":     {"4111111111111111", "4111 1111 1111 1111", "x4111-1111a1111b1111", "4111111111111112", "5555555555554444", "378282246310005", "6011111111111117", "30569309025904", "3530111333300000", "4222222222222"},
	"ssn":            {"111-11-1111", "111 11 1111", "111-11 1111", "111111111", "111-111111", "1111-1-1111"},
	"hexcolor":       {"#FFFFFF", "#fff", "fff", "#ffff", "ffffff", "##fff", "#ggg"},
	"rgbcolor":       {"rgb(255,255,255)", "rgb( 1 , 2 , 3 )", "rgb(256,0,0)", "rgb(01,0,0)", "rgb(0,0)", "RGB(0,0,0)", "rgb(199,249,250)", "rgb(0,0,0) ", "rgb(1,\t2,\n3)"},
	"byte":           {"", "aGVsbG8=", "YQ==", "YWI=", "YWJj", "YQ", "YR==", "-_-_", "YWJj\n", "a", "====", "YWJjZA==YWJj"},
	"password":       {"", "x"},
	"date":           {"2020-01-01", "2020-02-29", "2021-02-29", "2020-1-1", "2020-01-01 ", "0000-01-01", "2020-13-01", "10000-01-01", "2020-01-00", "2020-02-30", "2020-01-32"},
	"datetime":       {"2020-01-01T00:00:00Z", "2020-01-01t00:00:00z", "2020-01-01T00:00:00+25:00", "2020-01-01T00:00:00.5Z", "2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00x5Z", "2020-01-01T00:00:00.Z", "2020-01-01T24:00:00Z", "2020-01-01T23:60:00Z", "2020-01-01T23:59:60Z", "2020-01-01T0:00:00Z", "2020-01-01T00:00:00+99:99", "2020-01-01T00:00:00", "2020-01-01T00:00:00Zt", "2020-01-01 00:00:00Z", "2020-01-01T00:00:00+0000", "2021-02-29T00:00:00Z", "2020-01-01T00:00:00.123456789012Z", "2020-01-01T00:00:00é5Z", "2020-01-01T00:00:00K5Z"},
	"duration":       {"1d", "P1D", "2w 3d", "1h ", "22 ns", "1h30m", "-1.5h", "3 days", "1 fortnight", "d", "1", "1.5d", "1WEEKS", "1 milliseconds", "1millionaire", "5µs", "5μs", "5 micro", "5MICROSECONDS", "1 h x", "x1s", "99999999999999999999s", "99999999999999999999 x 1s", "1s99999999999999999999x", "1 hrs", "1 hourly", "1 nanny", "1 hr", "1 wk", "1 wks", "1 m", "1 mi", "1 minimum", "1 second", "1 secs", "1 sx", "٣s", "1\u00a0s", "1\ts", "1\fs", "1\vs", "106751d", "106752d", "9223372036854775807 x 1s", "1SEC", "1Ns", "1 ſ", "1 K", "1 µ", "1 µsec", "1MS", "0", "+0", ""},
	"k8s-short-name": {"a", "a-b", "-a", "a-", "A", "a.b", "123456789012345678901234567890123456789012345678901234567890123", "1234567890123456789012345678901234567890123456789012345678901234", "a\n"},
	"k8s-long-name":  {"a.b", "a..b", ".a", "a.", "a-.b", "1234567890123456789012345678901234567890123456789012345678901234.a", "a_b.c"},
}

const changed = " .-:/@+%<>()[]\"\\0159aAzZé😀\u0001\n"

func main() {
	names := []string{"bsonobjectid", "uri", "email", "hostname", "ipv4", "ipv6", "cidr", "mac", "uuid", "uuid3", "uuid4", "uuid5", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor", "byte", "password", "date", "datetime", "duration", "k8s-short-name", "k8s-long-name"}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for at, name := range names {
		random := rand.New(rand.NewSource(int64(at)))
		texts := append([]string{}, samples[name]...)
		for _, other := range names {
			texts = append(texts, samples[other][0])
		}
		marks := []rune(changed)
		for _, sample := range samples[name] {
			for range 4 {
				own := []rune(sample)
				if len(own) == 0 {
					continue
				}
				place, mark := random.Intn(len(own)), marks[random.Intn(len(marks))]
				switch random.Intn(3) {
				case 0:
					own[place] = mark
				case 1:
					own = append(own[:place], own[place+1:]...)
				default:
					own = append(own[:place], append([]rune{mark}, own[place:]...)...)
				}
				texts = append(texts, string(own))
			}
		}
		line := struct {
			Format string   `json:"format"`
			Yes    []string `json:"yes"`
			No     []string `json:"no"`
		}{Format: name, Yes: []string{}, No: []string{}}
		known := map[string]bool{}
		for _, text := range texts {
			if known[text] {
				continue
			}
			known[text] = true
			if strfmt.Default.Validates(name, text) {
				line.Yes = append(line.Yes, text)
			} else {
				line.No = append(line.No, text)
			}
		}
		if err := out.Encode(line); err != nil {
			panic(err)
		}
	}
}
