//! Work queue and controller driver.
