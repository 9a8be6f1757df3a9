"""The commands of `refnum`, a module each: parse options, call one function of another room, print."""
