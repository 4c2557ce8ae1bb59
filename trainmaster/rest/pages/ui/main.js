// The dashboard. For now it only says who is there.
const main = document.getElementById("app");
if (main) main.textContent = "Trainmaster";
