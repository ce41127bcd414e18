//! Methods that paths take, and the answer to others: upstream's routes of `server.go`, and go-restful's words.

use http::header::ALLOW;
use http::{HeaderValue, Method, Response, StatusCode};

use super::response::{Body, text};

/// Methods by the first segment of a path; paths that are not here take any, as handlers without a route do.
const METHODS: [(&str, &str); 10] = [
    ("run", "POST"),
    ("checkpoint", "POST"),
    ("exec", "GET, POST"),
    ("attach", "GET, POST"),
    ("portForward", "GET, POST"),
    ("containerLogs", "GET"),
    ("logs", "GET"),
    ("pods", "GET"),
    ("runningpods", "GET"),
    ("stats", "GET"),
];

/// The answer to a method that the path does not take.
pub(super) fn refusal(method: &Method, segments: &[&str]) -> Option<Response<Body>> {
    let first = segments.first()?;
    let (_, allowed) = METHODS.iter().find(|(own, _)| own == first)?;
    if allowed.split(", ").any(|own| own == method.as_str()) {
        return None;
    }
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed");
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_that_a_path_does_not_take_is_refused_with_those_that_it_takes() {
        for (method, path, allowed) in [
            ("GET", "pods", None),
            ("POST", "pods", Some("GET")),
            ("GET", "run/n/p/c", Some("POST")),
            ("POST", "run/n/p/c", None),
            ("GET", "checkpoint/n/p/c", Some("POST")),
            ("PUT", "exec/n/p/c", Some("GET, POST")),
            ("DELETE", "logs/a", Some("GET")),
            ("POST", "metrics", None),
            ("POST", "podsandmore", None),
            ("POST", "", None),
        ] {
            let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
            let answer = refusal(&method.parse().unwrap(), &segments);
            let found = answer.as_ref().map(|answer| {
                assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED);
                answer.headers()[ALLOW].to_str().unwrap()
            });
            assert_eq!(found, allowed, "{method} {path}");
        }
    }
}
