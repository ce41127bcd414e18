//! Addresses, parameters and media types: whatever a request says, it is read or refused, in memory and work that are in
//! proportion to it.

#![allow(clippy::unwrap_used, reason = "a test")]

use apiserver_endpoints::negotiation::{self, SupportedFormats};
use apiserver_endpoints::params::{self, RawDeleteOptions};
use apiserver_endpoints::{Query, RequestInfo};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Uri};
use machinery_fuzz::{Random, fuzz_built, in_proportion, lines};

/// Bytes held for each byte of the input: it is read a few times, and its parts are kept.
const HELD: usize = 64;
/// Longest input; longer ones are refused before they are read.
const LONGEST: usize = 1 << 16;

#[test]
fn addresses_and_parameters_are_answered() {
    let corpus = lines(include_str!("../testdata/fuzz/addresses.txt"));
    fuzz_built(corpus, address, |input| {
        let Ok(uri) = Uri::try_from(input) else { return };
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let info = in_proportion(input, HELD, || RequestInfo::parse(&method, &uri));
            if let Ok(info) = info {
                assert!(info.resource_path().len() <= 2 * input.len() + 16);
            }
        }
        let query = in_proportion(input, HELD, || Query::of(&uri));
        in_proportion(input, HELD, || drop(params::list(&query, "")));
        in_proportion(input, HELD, || drop(params::get(&query)));
        in_proportion(input, HELD, || drop(params::watch(&query, "web")));
        in_proportion(input, HELD, || drop(params::create(&query)));
        in_proportion(input, HELD, || drop(params::update(&query, "PatchOptions")));
        let delete = || drop(RawDeleteOptions::from_query(&query).and_then(RawDeleteOptions::check));
        in_proportion(input, HELD, delete);
    });
}

/// Addresses of many parts and of long ones, with many parameters, long ones and long selectors.
fn address(random: &mut Random) -> Vec<u8> {
    const ROOTS: [&str; 7] = [
        "/api/v1/",
        "/apis/apps/v1/",
        "/api/v1/namespaces/",
        "/api/v1/watch/namespaces/",
        "/apis/",
        "/",
        "/api/v1/proxy/",
    ];
    let mut text = random.pick(&ROOTS).to_owned();
    for _ in 0..random.count() {
        let part = match random.below(5) {
            0 => "%2f%2e%2e".repeat(random.count()),
            1 => "/".repeat(random.count()),
            2 => random
                .pick(&["..", ".", "pods", "x:y:z", "proxy", "log"])
                .to_owned(),
            _ => "n".repeat(random.count()),
        };
        text.push_str(&part);
        text.push('/');
    }
    text.push('?');
    for _ in 0..random.count() {
        text.push_str(&parameter(random));
        text.push_str(random.pick(&["&", ";", "&&", ""]));
        if text.len() > LONGEST {
            break;
        }
    }
    text.truncate(LONGEST);
    text.into_bytes()
}

fn parameter(random: &mut Random) -> String {
    const NAMES: [&str; 9] = [
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "timeoutSeconds",
        "dryRun",
        "fieldManager",
        "sendInitialEvents",
    ];
    let name = random.pick(&NAMES).to_owned();
    let value = match random.below(6) {
        0 => "a%3Db%2C".repeat(random.count()),
        1 => format!("a%20in%20({})", "b,".repeat(random.count())),
        2 => "9".repeat(random.count()),
        3 => "metadata.name=x,".repeat(random.count()),
        4 => "%41".repeat(random.count()),
        _ => "true".to_owned(),
    };
    format!("{name}={value}")
}

#[test]
fn media_types_are_answered() {
    let corpus = lines(include_str!("../testdata/fuzz/media_types.txt"));
    fuzz_built(corpus, media_type, |input| {
        let Ok(value) = HeaderValue::from_bytes(input) else {
            return;
        };
        for (name, offer) in [
            (ACCEPT, SupportedFormats::ALL),
            (CONTENT_TYPE, SupportedFormats::CUSTOM),
        ] {
            let headers = HeaderMap::from_iter([(name, value.clone())]);
            in_proportion(input, HELD, || drop(negotiation::accept(&headers, offer)));
            in_proportion(input, HELD, || drop(negotiation::content(&headers, offer)));
            in_proportion(input, HELD, || drop(negotiation::patch(&headers, false)));
        }
    });
}

/// Many types, types of many parameters, long names and strange weights.
fn media_type(random: &mut Random) -> Vec<u8> {
    const TYPES: [&str; 8] = [
        "application/json",
        "*/*",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/apply-patch+yaml",
        "a/",
        "/",
        "",
    ];
    const PARAMETERS: [&str; 9] = [
        "as=Table",
        "v=v1",
        "g=meta.k8s.io",
        "q=0.5",
        "q=1e9",
        "q=-1",
        "charset=\"a;b,c\\\"\"",
        "type=watch",
        "=",
    ];
    let mut text = String::new();
    for _ in 0..random.count().max(1) {
        text.push_str(random.pick(&TYPES));
        for _ in 0..random.below(3) * random.count() {
            text.push(';');
            text.push_str(random.pick(&PARAMETERS));
        }
        text.push_str(&random.pick(&[" ", "x", "\"", ""]).repeat(random.count()));
        text.push(',');
        if text.len() > LONGEST {
            break;
        }
    }
    text.truncate(LONGEST);
    text.into_bytes()
}
