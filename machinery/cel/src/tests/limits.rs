//! Bounds that expressions meet.

use crate::value::{Data, Decision};
use crate::{
    Authorizer, Check, Env, ErrorKind, Fields, Interrupt, Limits, Map, Opaque, Subject, Type, Value,
    Variables, escape, unescape,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

#[track_caller]
fn evaluated(text: &str, limits: &Limits) -> Result<String, ErrorKind> {
    let object = json!({"s": "a".repeat(1_000), "l": vec![1; 1_000]});
    let env = Env::new().variable("x", Type::Dyn);
    let program = env.compile(text).unwrap().program().unwrap();
    let variables = Variables::new().with("x", Data::from(&object).value());
    let done = program.evaluate(&variables, limits);
    done.value
        .map(|own| own.ty().to_string())
        .map_err(|error| error.kind)
}

#[test]
fn evaluation_ends_at_its_cost() {
    let text = "x.l.all(a, x.l.all(b, x.l.all(c, a == c)))";
    assert_eq!(evaluated(text, &Limits::default()), Err(ErrorKind::CostLimit));
    // What decides otherwise does not hide it.
    let text = format!("{text} || true");
    assert_eq!(evaluated(&text, &Limits::default()), Err(ErrorKind::CostLimit));
}

#[test]
fn evaluation_ends_at_its_memory() {
    // Upstream charges for the text that is read, and not for what is made of it.
    let text = "x.l.map(e, x.s.replace('', x.s))";
    assert_eq!(evaluated(text, &Limits::default()), Err(ErrorKind::ResourceLimit));
    let text = "'%.100000f'.format([1.0]) == '' || x.l.all(e, '%.99999f'.format([1.0]) != '')";
    assert_eq!(evaluated(text, &Limits::default()), Err(ErrorKind::ResourceLimit));
}

#[test]
fn evaluation_ends_at_its_work() {
    // The lists are equal to their last elements, which costs a tenth of what it takes.
    let text = "x.l.map(a, x.l).all(b, x.l.map(c, x.l) == x.l.map(d, x.l))";
    let wide = Limits {
        cost: u64::MAX,
        ..Limits::default()
    };
    assert_eq!(evaluated(text, &wide), Err(ErrorKind::ResourceLimit));
}

#[test]
fn patterns_of_an_evaluation_are_bounded() {
    let text = "x.l.all(e, 'a'.matches('((a{90}){10})' + string(e)) || true)";
    let wide = Limits {
        cost: u64::MAX,
        ..Limits::default()
    };
    assert_eq!(evaluated(text, &wide), Err(ErrorKind::ResourceLimit));
}

/// Each byte meets all states of a pattern whose automaton does not fit: seconds in one step, which its cost does not say.
#[test]
fn matches_is_charged_by_the_states_of_its_pattern_before_it_runs() {
    let object = json!({"s": "a".repeat(1_400_000), "p": "[a-z]{0,1000}x", "q": "^[a-z]+$"});
    let env = Env::new().variable("x", Type::Dyn);
    let wide = Limits {
        cost: u64::MAX,
        ..Limits::default()
    };
    let of = |text: &str| {
        let program = env.compile(text).unwrap().program().unwrap();
        let variables = Variables::new().with("x", Data::from(&object).value());
        let done = program.evaluate(&variables, &wide);
        done.value
            .map(|own| own.ty().to_string())
            .map_err(|error| error.kind)
    };
    for text in [
        "x.s.matches('[a-z]{0,1000}x')",
        "x.s.matches(x.p)",
        "x.s.find(x.p) == ''",
    ] {
        assert_eq!(of(text), Err(ErrorKind::ResourceLimit), "{text}");
    }
    for text in [
        "x.s.matches('^[a-z]+$')",
        "x.s.matches(x.q)",
        "x.s.find('^[a-z]+$') == x.s",
    ] {
        assert_eq!(of(text), Ok("bool".to_owned()), "{text}");
    }
}

/// Each search for the next match may look through the whole rest of the text.
#[test]
fn searches_of_a_list_of_matches_are_charged() {
    let wide = Limits {
        cost: u64::MAX,
        ..Limits::default()
    };
    let text = "x.l.all(e, size(x.s.findAll('a|x{500}y')) == 1000)";
    assert_eq!(evaluated(text, &wide), Err(ErrorKind::ResourceLimit));
    assert!(evaluated("x.s.findAll('a')", &wide).is_ok());
}

fn rules(schema: &serde_json::Value) -> crate::Rules {
    crate::Rules::compile(schema).expect("there are rules")
}

/// A rule of a long list's items has a problem for each, with its message.
#[test]
fn problems_of_an_object_are_bounded_in_bytes() {
    let rule = json!([{"rule": "self == 'b'", "message": "m".repeat(1_000)}]);
    let item = json!({"type": "string", "x-kubernetes-validations": rule});
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": item}}});
    let object = json!({"l": vec!["a"; 100_000]});
    let found = rules(&schema).check(Data::from(&object), None, None).problems;
    let bytes: usize = found.iter().map(|own| own.to_string().len()).sum();
    assert!((1_000_000..1_100_000).contains(&bytes), "{bytes}");
    let last = found.last().unwrap().to_string();
    assert!(
        last.ends_with("too many problems, no further validation rules will be run"),
        "{last}"
    );
}

/// Rules of a list's items each have the work of an evaluation, which their costs do not say.
#[test]
fn work_of_all_rules_of_an_object_is_bounded() {
    let rule = json!([{"rule": "size(self.findAll('a|x{500}y')) == 1000"}]);
    let item = json!({"type": "string", "x-kubernetes-validations": rule});
    let schema = json!({"type": "object", "properties": {"l": {"type": "array", "items": item}}});
    let object = json!({"l": vec!["a".repeat(1_000); 1_000]});
    let verdict = rules(&schema).check(Data::from(&object), None, None);
    let found: Vec<_> = verdict.problems.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let expected =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    assert!(
        found[0].ends_with(expected) && verdict.cost < 5_000_000,
        "{found:?}"
    );
}

/// Rules that are not read would allow what they forbid.
#[test]
fn rules_of_schemas_too_deep_refuse_the_definition() {
    let nested = |depth: usize| {
        let mut schema = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == ''"}]});
        for _ in 0..depth {
            schema = json!({"type": "object", "properties": {"a": schema}});
        }
        let problems = rules(&schema).problems(&machinery_meta::FieldPath::new("schema"));
        problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(nested(60), Vec::<String>::new());
    let found = nested(70);
    let expected = "rules are not supported below 64 schemas inside each other";
    assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
}

#[test]
fn evaluation_can_be_interrupted() {
    let interrupt: Option<Arc<dyn Interrupt>> = Some(Arc::new(AtomicBool::new(true)));
    let limits = Limits {
        interrupt,
        ..Limits::default()
    };
    assert_eq!(
        evaluated("x.l.all(e, true)", &limits),
        Err(ErrorKind::Interrupted)
    );
    assert_eq!(evaluated("1 + 1", &limits), Ok("int".to_owned()));
}

/// Wants an end after it was looked at so often.
#[derive(Debug)]
struct After(AtomicU32);

impl Interrupt for After {
    fn is_wanted(&self) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }
}

/// Rules without loops end, too, and no rule runs after the one that was ended.
#[test]
fn rules_of_an_object_end_where_an_end_is_wanted() {
    let rule = |text: &str| json!([{ "rule": text }]);
    let item = json!({"type": "string", "x-kubernetes-validations": rule("self == 'b'")});
    let list = json!({"type": "array", "items": item, "x-kubernetes-validations": rule("self.all(e, true)")});
    let schema = json!({"type": "object", "properties": {"l": list}});
    let object = json!({"l": vec!["a"; 1_000]});
    let found = |looks: u32| {
        let interrupt = Arc::new(After(AtomicU32::new(looks)));
        let verdict = rules(&schema).check(Data::from(&object), None, Some(interrupt));
        let found = verdict.problems.iter().map(ToString::to_string);
        found.collect::<Vec<_>>()
    };
    let expected = "l: Invalid value: \"array\": operation interrupted evaluating rule: self.all(e, true)";
    for looks in [0, 1] {
        assert_eq!(found(looks), [expected], "{looks}");
    }
    // The loop looks sixteen times, and the walk every 64 steps: two for each item, after four above them.
    let found = found(18);
    let last = "l[93]: Invalid value: \"string\": operation interrupted evaluating rule: self == 'b'";
    assert_eq!((found.len(), found.last().unwrap().as_str()), (94, last));
}

/// Rules of a field that items of a list need not have.
fn rules_below_names() -> crate::Rules {
    let x = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
    let item = json!({"type": "object", "properties": {"x": x}});
    let lists = json!({"type": "object", "additionalProperties": {"type": "array", "items": item}});
    rules(&json!({"type": "object", "properties": {"spec": lists}}))
}

/// Items below a name of so many bytes.
fn items_below_name(bytes: usize, items: Vec<serde_json::Value>) -> serde_json::Value {
    json!({"spec": {"k".repeat(bytes): items}})
}

/// Values that no rule stands at are walked all the same: half a million of them below a name of 1.5 MB took 19 seconds.
#[test]
fn walk_to_rules_ends_where_an_end_is_wanted() {
    let object = items_below_name(10, vec![json!({}); 5_000]);
    let interrupt = Arc::new(After(AtomicU32::new(1)));
    let verdict = rules_below_names().check(Data::from(&object), None, Some(interrupt));
    let found: Vec<_> = verdict.problems.iter().map(ToString::to_string).collect();
    let expected = "spec[kkkkkkkkkk][61]: Invalid value: \"object\": operation interrupted, no further validation rules will be run";
    assert_eq!((found, verdict.work), (vec![expected.to_owned()], 128));
    // Fields that are not there are looked up all the same.
    let field = || json!({"x-kubernetes-validations": [{"rule": "self > 0"}], "type": "integer"});
    let fields: serde_json::Map<_, _> = (0..100).map(|at| (format!("f{at}"), field())).collect();
    let wide = rules(&json!({"type": "object", "properties": fields}));
    let verdict = wide.check(
        Data::from(&json!({})),
        None,
        Some(Arc::new(AtomicBool::new(true))),
    );
    assert_eq!((verdict.problems.len(), verdict.work), (1, 101));
}

/// Bytes of paths are work, and no path is written but for a problem.
#[test]
fn walk_to_rules_does_not_copy_names_for_each_value() {
    let long = 100_000;
    let work = |bytes: usize, items: Vec<serde_json::Value>| {
        let object = items_below_name(bytes, items);
        let verdict = rules_below_names().check(Data::from(&object), None, None);
        (verdict.problems.len(), verdict.work)
    };
    let items = vec![json!({}); 5_000];
    // The object, its field, that one's value, the list, and each item with its field.
    let walked = 4 + 2 * 5_000;
    assert_eq!(work(1, items.clone()), (0, walked));
    assert_eq!(work(long, items.clone()), (0, walked));
    let broken = [items, vec![json!({"x": 0})]].concat();
    let (problems, work) = work(long, broken);
    assert_eq!(problems, 1);
    assert!((walked..walked + 2_000).contains(&work), "{work}");
}

/// Warnings beyond the room for them are not written.
#[test]
fn warnings_of_an_object_are_bounded_in_bytes() {
    let object = items_below_name(100_000, vec![json!({"x": 0}); 2_000]);
    let data = Data::from(&object);
    let verdict = rules_below_names().check(data, Some(data), None);
    assert_eq!((verdict.problems.len(), verdict.warnings.len()), (0, 11));
    assert!(verdict.work < 30_000, "{}", verdict.work);
}

#[test]
fn macros_that_copy_and_types_that_double_are_refused() {
    let env = Env::new().variable("x", Type::Dyn);
    let text = format!("x{}", ".?a.optMap(e, e)".repeat(60));
    let issues = env.compile(&text).unwrap_err().to_string();
    assert!(
        issues.contains("expression exceeds limit of 27688 nodes"),
        "{issues}"
    );
    let text = format!("[1]{}", ".map(e, {e: e})".repeat(40));
    let issues = env.compile(&text).unwrap_err().to_string();
    assert!(issues.contains("type has more than 1000 parts"), "{issues}");
}

#[test]
fn depth_and_size_are_upstreams() {
    let env = Env::new().variable("x", Type::Dyn);
    let wrong = |text: String| {
        env.compile(&text)
            .map_err(|issues| issues.to_string())
            .map(|_| ())
    };
    let parens = |count: usize| format!("{}1{}", "(".repeat(count), ")".repeat(count));
    let deep = Err("ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned());
    assert_eq!((wrong(parens(249)), wrong(parens(250))), (Ok(()), deep));
    let selects = |count: usize| format!("x{}", ".a".repeat(count));
    let long = Err("ERROR: <input>:-1:0: max recursion depth exceeded".to_owned());
    assert_eq!((wrong(selects(250)), wrong(selects(251))), (Ok(()), long.clone()));
    let sums = |count: usize| vec!["1"; count].join("+");
    assert_eq!((wrong(sums(251)), wrong(sums(252))), (Ok(()), long));
    let size = "expression code point size exceeds limit: size: 100001, limit 100000";
    let large = Err(format!("ERROR: <input>:-1:0: {size}"));
    assert_eq!(wrong("é".repeat(100_001)), large);
    // Terms of `&&` are balanced.
    assert_eq!(wrong(vec!["true"; 5_000].join(" && ")), Ok(()));
}

#[test]
fn names_are_escaped_and_back() {
    let pairs = [
        ("a", "a"),
        ("namespace", "__namespace__"),
        ("a.b-c/d", "a__dot__b__dash__c__slash__d"),
        ("__x__", "__underscores__x__underscores__"),
    ];
    for (name, escaped) in pairs {
        assert_eq!(escape(name).as_deref(), Some(escaped));
        assert_eq!(unescape(escaped).as_deref(), Some(name));
    }
    assert_eq!((escape("1a"), escape("a b"), escape("")), (None, None, None));
    assert_eq!(unescape("__nope__"), None);
}

#[derive(Debug)]
struct Rules;

impl Authorizer for Rules {
    fn authorize(&self, service_account: Option<(&str, &str)>, check: &Check, verb: &str) -> Decision {
        Decision {
            allowed: service_account == Some(("ns", "sa")) && check.resource == "pods" && verb == "get",
            reason: format!("{}/{}", check.namespace, check.name),
            error: None,
        }
    }
}

#[test]
fn authorizer_is_asked() {
    let env = Env::new().variable("authorizer", Type::object("kubernetes.authorization.Authorizer"));
    let text = "authorizer.serviceAccount('ns', 'sa').group('').resource('pods').namespace('n').name('p').check('get').allowed()";
    let compiled = env.compile(text).unwrap();
    assert_eq!(compiled.estimate(&crate::NoSizes).max, 350_007);
    let program = compiled.program().unwrap();
    let subject = Subject {
        authorizer: &Rules,
        service_account: None,
    };
    let value = Value::Opaque(Arc::new(Opaque::Authorizer(subject)));
    let variables = Variables::new().with("authorizer", value);
    let done = program.evaluate(&variables, &Limits::default());
    assert_eq!((done.value.unwrap().as_bool(), done.cost), (Some(true), 350_007));
}

#[derive(Debug)]
struct Later;

impl Fields for Later {
    fn get<'s>(&'s self, name: &str) -> Option<crate::Evaluated<'s>> {
        (name == "a").then_some(Ok(Value::Int(7)))
    }

    fn names(&self) -> Vec<String> {
        vec!["a".to_owned()]
    }
}

#[test]
fn fields_are_made_when_they_are_asked_for() {
    let env = Env::new().variable("variables", Type::Dyn);
    let program = env.compile("variables.a + 1").unwrap().program().unwrap();
    let variables = Variables::new().with("variables", Value::Map(Map::Fields(&Later)));
    let done = program.evaluate(&variables, &Limits::default());
    assert!(matches!(done.value, Ok(Value::Int(8))));
}

#[test]
fn objects_and_patches_are_made() {
    let env = Env::new().variable("x", Type::Dyn).with_mutation();
    let text =
        "[JSONPatch{op: 'add', path: '/a', value: Object.spec{n: 1}}, JSONPatch{op: 'test', path: '/b'}]";
    let program = env.compile(text).unwrap().program().unwrap();
    let variables = Variables::new();
    let done = program.evaluate(&variables, &Limits::default());
    let Ok(Value::List(list)) = done.value else {
        panic!("a list")
    };
    let Some(Ok(Value::Object(first))) = list.get(0) else {
        panic!("a patch")
    };
    assert_eq!(first.get("op").and_then(Value::as_str), Some("add"));
    assert!(matches!(first.get("value"), Some(Value::Object(own)) if &*own.type_name == "Object.spec"));
    let issues = env.compile("JSONPatch{op: 1}").unwrap_err().to_string();
    assert!(
        issues.contains("expected type of field 'op' is 'string' but provided type is 'int'"),
        "{issues}"
    );
}

#[test]
fn programs_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<crate::Program>();
    shared::<crate::Rules>();
    shared::<Value<'static>>();
}
