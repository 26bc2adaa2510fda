//! The judge says no when the device drops or doubles a completion on purpose.
#![forbid(unsafe_code)]
#[cfg(test)]
mod tests {}
