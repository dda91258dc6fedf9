// A field of the form may be called "submit", so the method is taken from where it cannot hide.
HTMLFormElement.prototype.submit.call(document.querySelector("form"));
