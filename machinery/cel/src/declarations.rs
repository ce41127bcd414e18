//! Functions with their signatures, as a table of lines: function, overload, arguments, result.
//!
//! A dot before the overload's name says that it is called on its first argument.

use crate::types::{Type, split};
use std::collections::HashMap;
use std::sync::LazyLock;

/// One signature of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

/// The functions of a library, by name, each with its overloads in the order in which they are tried.
pub(crate) type Functions = HashMap<&'static str, Vec<Overload>>;

/// Every function that there is.
pub(crate) static ALL: LazyLock<Functions> = LazyLock::new(|| {
    let mut all = Functions::new();
    for table in [
        OPERATORS, STANDARD, TIMES, OPTIONALS, STRINGS, LISTS, KUBERNETES, AUTHORIZER,
    ] {
        table.lines().for_each(|line| declare(&mut all, line));
    }
    for (symbol, name) in [
        ("<", "less"),
        ("<=", "less_equals"),
        (">", "greater"),
        (">=", "greater_equals"),
    ] {
        compare(&mut all, symbol, name);
    }
    for each in COMPARABLE.split(' ') {
        declare(
            &mut all,
            leaked(format!(
                "isSorted .list_{each}_is_sorted_bool (list({each})) bool"
            )),
        );
        declare(
            &mut all,
            leaked(format!("max .list_{each}_max_{each} (list({each})) {each}")),
        );
        declare(
            &mut all,
            leaked(format!("min .list_{each}_min_{each} (list({each})) {each}")),
        );
        let name = each.parse::<Type>().expect("a type of the table");
        let name = name.name();
        declare(
            &mut all,
            leaked(format!("sort .list_{name}_sort (list({each})) list({each})")),
        );
        let line = format!(
            "@sortByAssociatedKeys .list_{name}_sortByAssociatedKeys (list(T), list({each})) list(T)"
        );
        declare(&mut all, leaked(line));
    }
    for each in ["int", "uint", "double", "duration"] {
        declare(
            &mut all,
            leaked(format!("sum .list_{each}_sum_{each} (list({each})) {each}")),
        );
    }
    for format in crate::library::formats::NAMES {
        declare(
            &mut all,
            leaked(format!(
                "format.{format} format.{format} () kubernetes.NamedFormat"
            )),
        );
    }
    all
});

const COMPARABLE: &str = "int uint double bool duration timestamp string bytes";

/// Keeps the text of a line that is made once.
fn leaked(line: String) -> &'static str {
    line.leak()
}

fn declare(all: &mut Functions, line: &'static str) {
    if line.is_empty() {
        return;
    }
    let mut words = line.splitn(3, ' ');
    let function = words.next().expect("a line has a function");
    let id = words.next().expect("a line has an overload");
    let rest = words.next().expect("a line has a signature");
    let (args, result) = brackets(rest).expect("a line has arguments");
    let args = split(args)
        .into_iter()
        .map(|own| own.parse().expect("a type of the table"))
        .collect();
    let overload = Overload {
        id: id.trim_start_matches('.'),
        member: id.starts_with('.'),
        args,
        result: result.parse().expect("a type of the table"),
    };
    all.entry(function).or_default().push(overload);
}

/// The text in the first brackets, and the text after them.
fn brackets(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    for (at, own) in text.char_indices() {
        match own {
            '(' => depth += 1,
            ')' if depth == 1 => return Some((&text[1..at], text[at + 1..].trim())),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Comparisons of one kind: within a type, and of numbers of two types.
fn compare(all: &mut Functions, symbol: &str, name: &str) {
    let types = [
        ("bool", "bool"),
        ("int", "int64"),
        ("uint", "uint64"),
        ("double", "double"),
        ("string", "string"),
        ("bytes", "bytes"),
        ("timestamp", "timestamp"),
        ("duration", "duration"),
    ];
    for (left, left_id) in types {
        declare(
            all,
            leaked(format!("_{symbol}_ {name}_{left_id} ({left}, {left}) bool")),
        );
        for (right, right_id) in &types[1..4] {
            if types[1..4].iter().any(|own| own.0 == left) && *right != left {
                let id = format!("{name}_{left_id}_{right_id}");
                declare(all, leaked(format!("_{symbol}_ {id} ({left}, {right}) bool")));
            }
        }
    }
}

const OPERATORS: &str = "\
_?_:_ conditional (bool, A, A) A
_&&_ logical_and (bool, bool) bool
_||_ logical_or (bool, bool) bool
!_ logical_not (bool) bool
@not_strictly_false not_strictly_false (bool) bool
_==_ equals (A, A) bool
_!=_ not_equals (A, A) bool
_+_ add_bytes (bytes, bytes) bytes
_+_ add_double (double, double) double
_+_ add_duration_duration (duration, duration) duration
_+_ add_duration_timestamp (duration, timestamp) timestamp
_+_ add_timestamp_duration (timestamp, duration) timestamp
_+_ add_int64 (int, int) int
_+_ add_list (list(A), list(A)) list(A)
_+_ add_string (string, string) string
_+_ add_uint64 (uint, uint) uint
_/_ divide_double (double, double) double
_/_ divide_int64 (int, int) int
_/_ divide_uint64 (uint, uint) uint
_%_ modulo_int64 (int, int) int
_%_ modulo_uint64 (uint, uint) uint
_*_ multiply_double (double, double) double
_*_ multiply_int64 (int, int) int
_*_ multiply_uint64 (uint, uint) uint
-_ negate_double (double) double
-_ negate_int64 (int) int
_-_ subtract_double (double, double) double
_-_ subtract_duration_duration (duration, duration) duration
_-_ subtract_int64 (int, int) int
_-_ subtract_timestamp_duration (timestamp, duration) timestamp
_-_ subtract_timestamp_timestamp (timestamp, timestamp) duration
_-_ subtract_uint64 (uint, uint) uint
_[_] index_list (list(A), int) A
_[_] index_map (map(A, B), A) B
_[_] optional_list_index_int (optional_type(list(V)), int) optional_type(V)
_[_] optional_map_index_value (optional_type(map(K, V)), K) optional_type(V)
@in in_list (A, list(A)) bool
@in in_map (A, map(A, B)) bool
cel.@mapInsert @mapInsert_map_key_value (map(K, V), K, V) map(K, V)
cel.@mapInsert @mapInsert_map_map (map(K, V), map(K, V)) map(K, V)
";

const STANDARD: &str = "\
size size_bytes (bytes) int
size .bytes_size (bytes) int
size size_list (list(A)) int
size .list_size (list(A)) int
size size_map (map(A, B)) int
size .map_size (map(A, B)) int
size size_string (string) int
size .string_size (string) int
type type (A) type(A)
bool bool_to_bool (bool) bool
bool string_to_bool (string) bool
bytes bytes_to_bytes (bytes) bytes
bytes string_to_bytes (string) bytes
double double_to_double (double) double
double int64_to_double (int) double
double string_to_double (string) double
double uint64_to_double (uint) double
duration duration_to_duration (duration) duration
duration string_to_duration (string) duration
dyn to_dyn (A) dyn
int int64_to_int64 (int) int
int double_to_int64 (double) int
int duration_to_int64 (duration) int
int string_to_int64 (string) int
int timestamp_to_int64 (timestamp) int
int uint64_to_int64 (uint) int
string string_to_string (string) string
string bool_to_string (bool) string
string bytes_to_string (bytes) string
string double_to_string (double) string
string duration_to_string (duration) string
string int64_to_string (int) string
string timestamp_to_string (timestamp) string
string uint64_to_string (uint) string
string ip_to_string (~net.IP) string
string cidr_to_string (~net.CIDR) string
timestamp timestamp_to_timestamp (timestamp) timestamp
timestamp int64_to_timestamp (int) timestamp
timestamp string_to_timestamp (string) timestamp
uint uint64_to_uint64 (uint) uint
uint double_to_uint64 (double) uint
uint int64_to_uint64 (int) uint
uint string_to_uint64 (string) uint
contains .contains_string (string, string) bool
endsWith .ends_with_string (string, string) bool
startsWith .starts_with_string (string, string) bool
matches matches (string, string) bool
matches .matches_string (string, string) bool
";

const TIMES: &str = "\
getFullYear .timestamp_to_year (timestamp) int
getFullYear .timestamp_to_year_with_tz (timestamp, string) int
getMonth .timestamp_to_month (timestamp) int
getMonth .timestamp_to_month_with_tz (timestamp, string) int
getDayOfYear .timestamp_to_day_of_year (timestamp) int
getDayOfYear .timestamp_to_day_of_year_with_tz (timestamp, string) int
getDayOfMonth .timestamp_to_day_of_month (timestamp) int
getDayOfMonth .timestamp_to_day_of_month_with_tz (timestamp, string) int
getDate .timestamp_to_day_of_month_1_based (timestamp) int
getDate .timestamp_to_day_of_month_1_based_with_tz (timestamp, string) int
getDayOfWeek .timestamp_to_day_of_week (timestamp) int
getDayOfWeek .timestamp_to_day_of_week_with_tz (timestamp, string) int
getHours .timestamp_to_hours (timestamp) int
getHours .timestamp_to_hours_with_tz (timestamp, string) int
getHours .duration_to_hours (duration) int
getMinutes .timestamp_to_minutes (timestamp) int
getMinutes .timestamp_to_minutes_with_tz (timestamp, string) int
getMinutes .duration_to_minutes (duration) int
getSeconds .timestamp_to_seconds (timestamp) int
getSeconds .timestamp_to_seconds_tz (timestamp, string) int
getSeconds .duration_to_seconds (duration) int
getMilliseconds .timestamp_to_milliseconds (timestamp) int
getMilliseconds .timestamp_to_milliseconds_with_tz (timestamp, string) int
getMilliseconds .duration_to_milliseconds (duration) int
";

const OPTIONALS: &str = "\
optional.of optional_of (V) optional_type(V)
optional.ofNonZeroValue optional_ofNonZeroValue (V) optional_type(V)
optional.none optional_none () optional_type(V)
value .optional_value (optional_type(V)) V
hasValue .optional_hasValue (optional_type(V)) bool
or .optional_or_optional (optional_type(V), optional_type(V)) optional_type(V)
orValue .optional_orValue_value (optional_type(V), V) V
_?._ select_optional_field (dyn, string) optional_type(V)
_[?_] list_optindex_optional_int (list(V), int) optional_type(V)
_[?_] optional_list_optindex_optional_int (optional_type(list(V)), int) optional_type(V)
_[?_] map_optindex_optional_value (map(K, V), K) optional_type(V)
_[?_] optional_map_optindex_optional_value (optional_type(map(K, V)), K) optional_type(V)
last .list_last (list(V)) optional_type(V)
first .list_first (list(V)) optional_type(V)
optional.unwrap optional_unwrap (list(optional_type(V))) list(V)
unwrapOpt .optional_unwrapOpt (list(optional_type(V))) list(V)
";

const STRINGS: &str = "\
charAt .string_char_at_int (string, int) string
indexOf .string_index_of_string (string, string) int
indexOf .string_index_of_string_int (string, string, int) int
lastIndexOf .string_last_index_of_string (string, string) int
lastIndexOf .string_last_index_of_string_int (string, string, int) int
lowerAscii .string_lower_ascii (string) string
replace .string_replace_string_string (string, string, string) string
replace .string_replace_string_string_int (string, string, string, int) string
split .string_split_string (string, string) list(string)
split .string_split_string_int (string, string, int) list(string)
substring .string_substring_int (string, int) string
substring .string_substring_int_int (string, int, int) string
trim .string_trim (string) string
upperAscii .string_upper_ascii (string) string
format .string_format (string, list(dyn)) string
strings.quote strings_quote (string) string
join .list_join (list(string)) string
join .list_join_string (list(string), string) string
find .string_find_string (string, string) string
findAll .string_find_all_string (string, string) list(string)
findAll .string_find_all_string_int (string, string, int) list(string)
";

const LISTS: &str = "\
sets.contains list_sets_contains_list (list(T), list(T)) bool
sets.equivalent list_sets_equivalent_list (list(T), list(T)) bool
sets.intersects list_sets_intersects_list (list(T), list(T)) bool
slice .list_slice (list(T), int, int) list(T)
flatten .list_flatten (list(list(T))) list(T)
flatten .list_flatten_int (list(dyn), int) list(dyn)
lists.range lists_range (int) list(int)
reverse .list_reverse (list(T)) list(T)
distinct .list_distinct (list(T)) list(T)
indexOf .list_a_index_of_int (list(A), A) int
lastIndexOf .list_a_last_index_of_int (list(A), A) int
includes .list_includes_dyn_dyn (dyn, dyn) bool
";

const KUBERNETES: &str = "\
url string_to_url (string) kubernetes.URL
getScheme .url_get_scheme (kubernetes.URL) string
getHost .url_get_host (kubernetes.URL) string
getHostname .url_get_hostname (kubernetes.URL) string
getPort .url_get_port (kubernetes.URL) string
getEscapedPath .url_get_escaped_path (kubernetes.URL) string
getQuery .url_get_query (kubernetes.URL) map(string, list(string))
isURL is_url_string (string) bool
ip string_to_ip (string) ~net.IP
ip .cidr_ip (~net.CIDR) ~net.IP
family .ip_family (~net.IP) int
ip.isCanonical ip_is_canonical (string) bool
isUnspecified .ip_is_unspecified (~net.IP) bool
isLoopback .ip_is_loopback (~net.IP) bool
isLinkLocalMulticast .ip_is_link_local_multicast (~net.IP) bool
isLinkLocalUnicast .ip_is_link_local_unicast (~net.IP) bool
isGlobalUnicast .ip_is_global_unicast (~net.IP) bool
isIP is_ip (string) bool
cidr string_to_cidr (string) ~net.CIDR
containsIP .cidr_contains_ip_string (~net.CIDR, string) bool
containsIP .cidr_contains_ip_ip (~net.CIDR, ~net.IP) bool
containsCIDR .cidr_contains_cidr_string (~net.CIDR, string) bool
containsCIDR .cidr_contains_cidr (~net.CIDR, ~net.CIDR) bool
prefixLength .cidr_prefix_length (~net.CIDR) int
masked .cidr_masked (~net.CIDR) ~net.CIDR
isCIDR is_cidr (string) bool
quantity string_to_quantity (string) kubernetes.Quantity
isQuantity is_quantity_string (string) bool
sign quantity_sign (kubernetes.Quantity) int
isGreaterThan .quantity_is_greater_than (kubernetes.Quantity, kubernetes.Quantity) bool
isLessThan .quantity_is_less_than (kubernetes.Quantity, kubernetes.Quantity) bool
compareTo .quantity_compare_to (kubernetes.Quantity, kubernetes.Quantity) int
asApproximateFloat .quantity_get_float (kubernetes.Quantity) double
asInteger .quantity_get_int (kubernetes.Quantity) int
isInteger .quantity_is_integer (kubernetes.Quantity) bool
add .quantity_add (kubernetes.Quantity, kubernetes.Quantity) kubernetes.Quantity
add .quantity_add_int (kubernetes.Quantity, int) kubernetes.Quantity
sub .quantity_sub (kubernetes.Quantity, kubernetes.Quantity) kubernetes.Quantity
sub .quantity_sub_int (kubernetes.Quantity, int) kubernetes.Quantity
semver string_to_semver (string) kubernetes.Semver
semver string_bool_to_semver (string, bool) kubernetes.Semver
isSemver is_semver_string (string) bool
isSemver is_semver_string_bool (string, bool) bool
isGreaterThan .semver_is_greater_than (kubernetes.Semver, kubernetes.Semver) bool
isLessThan .semver_is_less_than (kubernetes.Semver, kubernetes.Semver) bool
compareTo .semver_compare_to (kubernetes.Semver, kubernetes.Semver) int
major .semver_major (kubernetes.Semver) int
minor .semver_minor (kubernetes.Semver) int
patch .semver_patch (kubernetes.Semver) int
validate .format-validate (kubernetes.NamedFormat, string) optional_type(list(string))
format.named format-named (string) optional_type(kubernetes.NamedFormat)
jsonpatch.escapeKey string_jsonpatch_escapeKey_string (string) string
";

const AUTHORIZER: &str = "\
path .authorizer_path (kubernetes.authorization.Authorizer, string) kubernetes.authorization.PathCheck
group .authorizer_group (kubernetes.authorization.Authorizer, string) kubernetes.authorization.GroupCheck
serviceAccount .authorizer_serviceaccount (kubernetes.authorization.Authorizer, string, string) kubernetes.authorization.Authorizer
resource .groupcheck_resource (kubernetes.authorization.GroupCheck, string) kubernetes.authorization.ResourceCheck
subresource .resourcecheck_subresource (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.ResourceCheck
namespace .resourcecheck_namespace (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.ResourceCheck
name .resourcecheck_name (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.ResourceCheck
fieldSelector .authorizer_fieldselector (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.ResourceCheck
labelSelector .authorizer_labelselector (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.ResourceCheck
check .pathcheck_check (kubernetes.authorization.PathCheck, string) kubernetes.authorization.Decision
check .resourcecheck_check (kubernetes.authorization.ResourceCheck, string) kubernetes.authorization.Decision
errored .decision_errored (kubernetes.authorization.Decision) bool
error .decision_error (kubernetes.authorization.Decision) string
allowed .decision_allowed (kubernetes.authorization.Decision) bool
reason .decision_reason (kubernetes.authorization.Decision) string
";
