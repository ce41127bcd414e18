//! The API's HTTP: requests become verbs, results become bodies.
