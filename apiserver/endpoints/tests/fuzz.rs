//! Addresses, parameters and media types: whatever a request says, it is read or refused.

#![allow(clippy::unwrap_used, reason = "a test")]

use apiserver_endpoints::negotiation::{self, Offer};
use apiserver_endpoints::params::{self, RawDeleteOptions};
use apiserver_endpoints::{Query, RequestInfo};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Uri};
use machinery_fuzz::{fuzz, lines};

#[test]
fn addresses_and_parameters_are_answered() {
    fuzz(lines(include_str!("../testdata/fuzz/addresses.txt")), |input| {
        let Ok(uri) = Uri::try_from(input) else { return };
        for method in [Method::GET, Method::POST, Method::DELETE] {
            if let Ok(info) = RequestInfo::parse(&method, &uri) {
                assert!(info.resource_path().len() <= 2 * input.len() + 16);
            }
        }
        let query = Query::of(&uri);
        drop(params::list(&query, ""));
        drop(params::get(&query));
        drop(params::watch(&query, "web"));
        drop(params::create(&query));
        drop(params::update(&query, "PatchOptions"));
        drop(RawDeleteOptions::from_query(&query).and_then(RawDeleteOptions::check));
    });
}

#[test]
fn media_types_are_answered() {
    fuzz(lines(include_str!("../testdata/fuzz/media_types.txt")), |input| {
        let Ok(value) = HeaderValue::from_bytes(input) else {
            return;
        };
        for (name, offer) in [(ACCEPT, Offer::ALL), (CONTENT_TYPE, Offer::CUSTOM)] {
            let headers = HeaderMap::from_iter([(name, value.clone())]);
            drop(negotiation::accept(&headers, offer));
            drop(negotiation::content(&headers, offer));
            drop(negotiation::patch(&headers, false));
        }
    });
}
