//! Evaluations per second on a processor, and what compiling costs. `cargo bench -p machinery-cel`.
//!
//! Times are the thread's time on a processor, so that what else runs there matters less.
#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use machinery_cel::{Data, Env, Limits, Type, Variables};
use std::hint::black_box;

const REPEATS: u32 = 9;

/// Expressions as policies and rules have them.
const EXPRESSIONS: [(&str, &str); 6] = [
    ("compare", "object.spec.replicas <= 5"),
    (
        "presence",
        "has(object.metadata.labels) && 'app' in object.metadata.labels",
    ),
    (
        "containers",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example/') && has(c.resources))",
    ),
    (
        "names",
        "object.spec.template.spec.containers.map(c, c.name).filter(n, n.matches('^[a-z]+$')).size() == 3",
    ),
    (
        "quantity",
        "quantity(object.spec.template.spec.memory).isLessThan(quantity('2Gi'))",
    ),
    (
        "message",
        "'%s has %d replicas'.format([object.metadata.name, object.spec.replicas])",
    ),
];

const OBJECT: &str = r#"{"metadata":{"name":"web","labels":{"app":"web","tier":"front"}},"spec":{"replicas":3,"template":{"spec":{"memory":"1Gi","containers":[{"name":"a","image":"registry.example/a","resources":{}},{"name":"b","image":"registry.example/b","resources":{}},{"name":"c","image":"registry.example/c","resources":{}}]}}}}"#;

fn main() {
    let object: serde_json::Value = serde_json::from_str(OBJECT).expect("it is JSON");
    let env = Env::new().variable("object", Type::Dyn);
    for (name, text) in EXPRESSIONS {
        measure(&format!("compile {name}"), 2_000, || {
            let compiled = env.compile(text).expect("it compiles");
            drop(black_box(compiled.program()));
        });
        let program = env
            .compile(text)
            .expect("it compiles")
            .program()
            .expect("a program");
        let limits = Limits::default();
        measure(&format!("evaluate {name}"), 20_000, || {
            let variables = Variables::new().with("object", Data::from(&object).value());
            let done = program.evaluate(&variables, &limits);
            assert!(done.value.is_ok());
        });
    }
}

/// The best of some repeats: the one that was disturbed least.
fn measure(what: &str, rounds: u32, mut run: impl FnMut()) {
    let mut best = u64::MAX;
    for _ in 0..REPEATS {
        let start = on_processor();
        for _ in 0..rounds {
            run();
        }
        best = best.min(on_processor() - start);
    }
    let each = best / u64::from(rounds);
    println!(
        "{what:24} {each:>8} ns {:>10} a second",
        1_000_000_000 / each.max(1)
    );
}

fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says");
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .expect("its first number is the time")
}
