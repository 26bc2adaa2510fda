//! Values with small numbers that are reused.
//!
//! *Owns*: which numbers are free. *Must not*: give out a number that is in use.

/// A set of values by number.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    /// Adds a value; returns its number.
    pub(super) fn add(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize] = Some(value);
            return number;
        }
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(Some(value));
        number
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.values.get(number as usize)?.as_ref()
    }

    /// Removes a value and returns it.
    pub(super) fn take(&mut self, number: u64) -> Option<T> {
        let number = u32::try_from(number).ok()?;
        let value = self.values.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// Removes every value, so that all numbers are free.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::Numbered;

    #[test]
    fn a_number_is_given_again_after_its_value_was_taken() {
        let mut values = Numbered::default();
        assert_eq!([values.add('a'), values.add('b')], [0, 1]);
        assert_eq!(values.take(0), Some('a'));
        assert_eq!((values.take(0), values.get(0)), (None, None));
        assert_eq!([values.add('c'), values.add('d')], [0, 2]);
        assert_eq!(values.get(1), Some(&'b'));
        assert_eq!(values.take(u64::MAX), None);
        values.clear();
        assert_eq!(values.add('e'), 0);
    }
}
