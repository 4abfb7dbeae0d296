"""A model of the sending core that visits every order of events, and its tests."""
