//! Large bodies, which are worked on off the request threads, and patches that would grow without bound: each is answered
//! as small ones are, and as upstream answers.

#![allow(clippy::unwrap_used, reason = "a test, helpers included")]

mod common;

use common::Api;
use http::Method;
use machinery_runtime::Simulation;

const JSON: &str = "application/json";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MAP: &str = "/api/v1/namespaces/default/configmaps/large?fieldManager=m";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn map(more: &str) -> String {
    let text = "x".repeat(100_000);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"large"}},"data":{{"k":"{text}"{more}}}}}"#
    )
}

#[test]
fn large_bodies_are_answered_as_small_ones() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::new(runtime).await;
        let made = api.ask(Method::POST, MAPS, (JSON, JSON), map("")).await;
        assert_eq!(made.code, 201, "{}", String::from_utf8_lossy(&made.body));
        let twice = map(r#","k":"y""#);
        let strict = format!("{MAPS}?fieldValidation=Strict");
        let refused = api.ask(Method::POST, &strict, (JSON, JSON), twice).await;
        assert_eq!(refused.code, 400);
        let text = "y".repeat(100_000);
        let value = format!(r#"{{"data":{{"l":"{text}"}}}}"#);
        for form in [MERGE_PATCH, STRATEGIC] {
            let patched = api.ask(Method::PATCH, MAP, (form, JSON), value.clone()).await;
            assert_eq!(patched.code, 200, "{form}");
        }
        let add = format!(r#"[{{"op":"add","path":"/data/m","value":"{text}"}}]"#);
        let patched = api.ask(Method::PATCH, MAP, (JSON_PATCH, JSON), add).await;
        assert_eq!(patched.code, 200);
        let force = format!("{MAP}&force=true");
        let applied = api
            .ask(Method::PATCH, &force, (APPLY, JSON), map(r#","n":"1""#))
            .await;
        assert_eq!(applied.code, 200, "{}", String::from_utf8_lossy(&applied.body));
    });
}

#[test]
fn questions_are_refused_from_a_size_on_that_is_worked_on_at_once() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::new(runtime).await;
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let values = r#""v","#.repeat(100_000);
        let review = |values: &str| {
            let requirement = format!(r#"{{"key":"k","operator":"In","values":[{values}"v"]}}"#);
            let attributes =
                format!(r#"{{"verb":"get","labelSelector":{{"requirements":[{requirement}]}}}}"#);
            format!(r#"{{"spec":{{"resourceAttributes":{attributes}}}}}"#)
        };
        let refused = api.ask(Method::POST, path, (JSON, JSON), review(&values)).await;
        let said = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.code, 413, "{said}");
        assert!(said.contains("limit is 262144"), "{said}");
        let read = api
            .ask(Method::POST, path, (JSON, JSON), review(&values[..200_000]))
            .await;
        assert_ne!(read.code, 413);
    });
}

#[test]
fn patches_that_grow_are_refused_as_upstream_does() {
    let simulation = Simulation::new(1);
    let runtime = simulation.runtime();
    simulation.run(async move {
        let api = Api::new(runtime).await;
        let made = api.ask(Method::POST, MAPS, (JSON, JSON), map("")).await;
        assert_eq!(made.code, 201);
        let nested = "[".repeat(250) + &"]".repeat(250);
        let mut doubling = vec![format!(r#"{{"op":"add","path":"/x","value":{nested}}}"#)];
        for times in 0..7 {
            let path = "/0".repeat((250 << times) - 1);
            doubling.push(format!(r#"{{"op":"copy","from":"/x","path":"/x{path}/-"}}"#));
        }
        let list = format!(
            r#"{{"op":"add","path":"/x","value":[{}0]}}"#,
            "0,".repeat(200_000)
        );
        let mut steps = vec![list];
        steps.extend((0..9_000).map(|_| r#"{"op":"add","path":"/x/0","value":0}"#.to_owned()));
        for (operations, code, reason) in [(doubling, 422, ""), (steps, 413, "RequestEntityTooLarge")] {
            let patch = format!("[{}]", operations.join(","));
            let answer = api.ask(Method::PATCH, MAP, (JSON_PATCH, JSON), patch).await;
            let said = String::from_utf8_lossy(&answer.body).into_owned();
            assert_eq!(answer.code, code, "{said}");
            assert!(said.contains(reason), "{said}");
        }
        let kept = api.ask(Method::GET, MAP, (JSON, JSON), "").await;
        assert_eq!(kept.code, 200);
    });
}
